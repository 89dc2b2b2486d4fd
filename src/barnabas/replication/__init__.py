"""Replication of partitions: replica manager, leaders, followers, and requests that wait for replicas."""
