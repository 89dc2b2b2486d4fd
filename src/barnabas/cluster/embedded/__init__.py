"""Embedded coordination store: one process, one journal on disk."""
