"""Topic that a producer sends to: its partitions, their queues, and the choice among them.

The number of partitions follows the metadata cache: the producer calls `refresh` after each update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.client.core.metadata import Metadata
from barnabas.client.producer.core.accumulator import Accumulator, Queue
from barnabas.client.producer.core.partitioners import (
    ROUND_ROBIN,
    KeyPartitioner,
    PartitionFunction,
    RoundRobin,
    StickyPartition,
    check_partition,
)
from barnabas.core.ids import Randomness


class TargetTopic:
    def __init__(
        self,
        name: str,
        metadata: Metadata,
        accumulator: Accumulator,
        randomness: Randomness,
        *,
        partitioner: Any,
        ignores_keys: bool,
        adaptive: bool,
    ) -> None:
        self.name = name
        self.partition_count = 0
        """0 while the topic is not known."""
        self.queues: list[Queue] = []
        self.sticky: StickyPartition | None = None
        """None when another partitioner is set, or before the first record without a key."""
        self._metadata = metadata
        self._accumulator = accumulator
        self._randomness = randomness
        self._ignores_keys = ignores_keys
        self._adaptive = adaptive
        self._keys = KeyPartitioner()
        self._round_robin = RoundRobin() if partitioner == ROUND_ROBIN else None
        self._function: PartitionFunction | None = partitioner if callable(partitioner) else None
        self.refresh()

    def refresh(self) -> None:
        """Take the number of partitions from the metadata."""
        count = self._metadata.partition_count(self.name)
        if count != self.partition_count:
            self.partition_count = count
            if count:
                self._accumulator.queue(self.name, count - 1)
                self.queues = self._accumulator.queues[self.name]

    def choose(self, key: bytes | None) -> int:
        """Partition of a record."""
        if self._function is not None:
            chosen = self._function(self.name, key, self.partition_count)
            return check_partition(self.name, chosen, self.partition_count)
        if self._round_robin is not None:
            return self._round_robin.partition(self.name, self)
        if key is not None and not self._ignores_keys:
            return self._keys.partition(key, self.partition_count)
        sticky = self.sticky
        if sticky is None:
            batch_bytes = self._accumulator.options.batch_bytes
            sticky = StickyPartition(self, batch_bytes, self._randomness, adaptive=self._adaptive)
            self.sticky = sticky
        elif sticky.partition >= self.partition_count:
            sticky.move()
        return sticky.partition

    # --- the partitioners' view ---

    def available(self) -> Sequence[int]:
        topic = self._metadata.topic(self.name)
        return [row.index for row in topic.partitions if row.leader_id >= 0] if topic is not None else ()

    def queued(self, partition: int) -> int:
        return len(self.queues[partition].batches)
