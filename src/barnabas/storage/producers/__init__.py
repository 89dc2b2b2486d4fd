"""State of the idempotent and transactional producers of a log, and its snapshots on disk."""
