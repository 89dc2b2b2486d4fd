"""Hosting of declarative pipelines: the service runs Spark's updates of them."""
