"""Follower side of replication: fetches from leaders, and truncates the log where it diverges."""
