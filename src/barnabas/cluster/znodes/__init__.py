"""Znodes: each owns its path and codec, in the layout of Apache Kafka."""
