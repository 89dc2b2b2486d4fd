"""Bounds on requests: the budget that a request spends and the memory that outlives it."""
