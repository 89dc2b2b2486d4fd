"""Parts of a log: segments, leader epochs, watermarks, flush state and appends."""
