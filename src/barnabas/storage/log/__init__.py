"""The log of one partition: appending, reading, flushing, truncation, retention, and opening it from disk."""
