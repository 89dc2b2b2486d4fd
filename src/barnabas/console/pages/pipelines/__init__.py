"""Pipelines, over the REST interface of their service, or of a Kafka Connect worker."""
