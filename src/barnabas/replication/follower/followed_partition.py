"""Where a follower stands with one partition.

A `FollowedPartition` belongs to one leader epoch: when the controller names another, it is replaced by a new
object, and an answer to a fetch that was sent for the old one finds that it is no longer the one in charge
and is dropped.
"""

from __future__ import annotations

from barnabas.core.ids import NO_OFFSET, TopicPartition
from barnabas.replication.partition import Partition


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
        """The leader's, as last heard."""
        self.failures = 0
        """In a row."""
        self.ready_ms = 0.0
        """Not fetched before."""
        self.is_out_of_range = False
        """The leader does not have our offset: its own must be asked for."""

    @property
    def lag(self) -> int:
        """How many records the leader has committed that we do not have."""
        return max(self.high_watermark - self.partition.log.log_end_offset, 0)
