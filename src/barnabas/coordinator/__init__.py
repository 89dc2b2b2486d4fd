"""What replays a partition into state: group membership and offsets, and later transactions.

Nothing in here does I/O of its own: records go out and come in through `log_access`.
"""
