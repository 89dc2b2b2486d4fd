"""Runs one pipeline on Spark: driver process, sources, transforms and sinks as streaming queries."""
