"""What a log remembers of its idempotent and transactional producers, and the snapshots of it on disk."""
