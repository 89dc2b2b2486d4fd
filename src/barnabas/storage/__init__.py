"""Kafka's log on disk: segments, indexes, producer state, leader epochs, checkpoints.

The bytes of a log are the truth; everything else (indexes, epoch file, producer snapshots)
can be deleted and is derived again. The event loop owns every object here; only what blocks
(fsync, deletion, recovery) runs elsewhere, on files and never on state.
"""
