"""Committed offsets: commit, fetch, expiry, and the offsets of deleted topics."""
