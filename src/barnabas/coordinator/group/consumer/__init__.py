"""Consumer group protocol (KIP-848): heartbeats, assignment and reconciliation."""
