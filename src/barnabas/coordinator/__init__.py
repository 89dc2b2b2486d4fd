"""What replays a partition into state: group membership and offsets, and transactions.

Nothing in here does I/O of its own: records go through the replicas (`log`), and whoever is asked over the
network or in the coordination store is asked through interfaces.
"""
