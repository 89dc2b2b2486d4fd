"""Sinks: one file per type."""
