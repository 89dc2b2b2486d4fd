"""Moves data: partitions, the replica manager, and the requests that wait in the purgatory."""
