"""Pages of one partition: the picture of its log."""
