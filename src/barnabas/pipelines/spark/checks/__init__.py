"""Checks before a pipeline starts."""
