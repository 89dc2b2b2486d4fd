"""The log of one partition: append, read, flush, truncation, retention and search by time."""
