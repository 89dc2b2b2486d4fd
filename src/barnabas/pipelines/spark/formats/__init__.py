"""Record formats: one file per format, bytes to columns and columns to bytes."""
