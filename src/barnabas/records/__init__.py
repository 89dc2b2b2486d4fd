"""Record batches: the v2 format as a view, its validation, builder and codecs, and the older formats."""
