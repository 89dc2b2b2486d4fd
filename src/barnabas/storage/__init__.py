"""Kafka's log on disk: segments, indexes, producer state, leader epochs, checkpoints.

The bytes of a log are the truth. Indexes, the epoch file and producer snapshots can be deleted and are
derived again. The event loop owns every object here. Blocking work (fsync, deletion, recovery) runs in
threads, on files and never on state.
"""
