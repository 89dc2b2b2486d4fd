"""Group coordinator: membership, assignment and committed offsets of consumer groups."""
