"""Declarative pipelines without Spark: whom to trust, what they have read, when the next update is due."""
