"""Coordination interface, and the parts that both implementations share."""
