"""Cluster on one machine: its brokers, users, certificates and secret files."""
