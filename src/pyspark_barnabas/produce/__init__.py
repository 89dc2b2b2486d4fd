"""Rows to batches, and batches to brokers."""
