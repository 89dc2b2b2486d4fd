"""Metrics and log lines: rate limits, bounded text, and errors that do not end periodic work."""
