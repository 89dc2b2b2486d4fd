"""Lakehouse tables of pipelines: Delta Lake and Apache Iceberg, committed once per micro-batch."""
