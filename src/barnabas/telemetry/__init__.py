"""Metrics that clients push (KIP-714): subscriptions, client instances, and what is kept. No I/O."""
