"""Reactions of the controller to changes: brokers, topics, deletions, reassignments, elections."""
