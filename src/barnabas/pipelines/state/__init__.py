"""State of a pipeline on disk, readable without Spark."""
