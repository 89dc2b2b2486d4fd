"""Files that a pipeline keeps beside Spark's checkpoint."""
