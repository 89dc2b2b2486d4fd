"""Cluster state kept in the coordination store, by subject."""
