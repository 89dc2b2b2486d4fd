"""Projects of Spark's declarative pipelines: read, checked and written without Spark."""
