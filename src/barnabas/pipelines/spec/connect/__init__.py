"""Kafka Connect configurations, translated to specs."""
