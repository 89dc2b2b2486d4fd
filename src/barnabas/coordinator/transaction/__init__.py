"""Transactions: who may write under a transactional id, and how all of a transaction ends at once."""
