"""State of a transactional id: metadata, transitions, records and rules."""
