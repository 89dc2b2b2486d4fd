"""Fetch state of one followed partition.

A `FollowedPartition` belongs to one leader epoch. A new leader epoch replaces it with a new object. A
response to a fetch of the old object no longer matches the one in charge, and is dropped.
"""

from __future__ import annotations

from barnabas.core.ids import NO_OFFSET, TopicPartition
from barnabas.replication.partition.partition import Partition


class FollowedPartition:
    __slots__ = (
        "failures",
        "high_watermark",
        "is_out_of_range",
        "key",
        "leader_epoch",
        "partition",
        "ready_ms",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leadership.leader_epoch
        self.key: TopicPartition = partition.topic_partition
        self.high_watermark = NO_OFFSET
        """High watermark of the leader in its last response."""
        self.failures = 0
        """Consecutive failures."""
        self.ready_ms = 0.0
        """The partition is not fetched before this time."""
        self.is_out_of_range = False
        """The leader does not have the fetch offset; ListOffsets has to find its range."""

    @property
    def is_durable(self) -> bool:
        """Whether the log may be fetched from its end: the leader takes everything below for safe."""
        log = self.partition.log
        return log.durable_end_offset >= log.log_end_offset

    @property
    def lag(self) -> int:
        """Committed records of the leader that this replica lacks."""
        return max(self.high_watermark - self.partition.log.log_end_offset, 0)
