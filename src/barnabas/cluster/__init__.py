"""Cluster state: znodes, coordination interface and its implementations, registration, metadata."""
