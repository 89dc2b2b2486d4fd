"""Spec of a pipeline: options, parsing, validation and columns, all without Spark."""
