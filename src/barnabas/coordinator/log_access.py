"""What a coordinator asks of the replicas: read a partition back, append to it, wait for replication.

Every call names the leader epoch under which the coordinator was elected. Once the partition has moved
on, appending raises NOT_LEADER_OR_FOLLOWER, so a coordinator of the past cannot write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition


class CoordinatorLog(Protocol):
    def start_offset(self, topic_partition: TopicPartition) -> int: ...

    def end_offset(self, topic_partition: TopicPartition) -> int: ...

    def read(self, topic_partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        """Batches from the one that holds `offset` on; at least one, empty at the end of the log.
        The last one may be cut off."""
        ...

    def batch_bytes_max(self, topic_partition: TopicPartition) -> int:
        """The size of the largest batch that can be appended now."""
        ...

    def append(self, topic_partition: TopicPartition, leader_epoch: int, batch: bytearray) -> int:
        """Append one batch; returns the offset after it."""
        ...

    def await_replication(
        self,
        topic_partition: TopicPartition,
        leader_epoch: int,
        end_offset: int,
        timeout_ms: float,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Call `done` when everything below `end_offset` is replicated (at once, if it is already)."""
        ...

    def wake(self, topic_partition: TopicPartition) -> None:
        """Records were appended and their writers answered: let readers go on."""
        ...
