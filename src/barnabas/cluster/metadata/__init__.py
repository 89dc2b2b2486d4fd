"""Cluster metadata that every broker holds: the cache, its updates, replica placement."""
