"""Partitioners: the partition of each record.

- A record with a key goes to the partition of its murmur2 hash, as in Java, so that keys stay together.
- A record without a key goes to the sticky partition of its topic (KIP-480, KIP-794): about `batch.size`
  bytes go to one partition, then to another. That fills batches. The next partition is drawn at random.
  Partitions with long queues are drawn less often, so that a slow broker gets less (adaptive partitioning).
- `round-robin` takes the partitions in turn, for every record.
- An application may bring a function of topic, key and the number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from barnabas.client.core.partitioner import partition_for_key
from barnabas.core.errors import InvalidConfig, InvalidPartitions
from barnabas.core.ids import Randomness

KEYS_CACHED_MAX: Final = 10_000
KEY_BYTES_CACHED_MAX: Final = 64
"""Hashing a key takes longer than finding it: repeated short keys are remembered, within this bound."""

PartitionFunction = Callable[[str, bytes | None, int], int]
"""Chooses a partition from topic, key and the number of partitions."""


class TopicLoad(Protocol):
    """View of a topic that a partitioner needs."""

    @property
    def partition_count(self) -> int: ...
    def available(self) -> Sequence[int]:
        """Partitions with a leader."""
        ...

    def queued(self, partition: int) -> int:
        """Batches of a partition that wait to be sent."""
        ...


class KeyPartitioner:
    """murmur2 of the key, with a bounded memory of keys."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._count = 0

    def partition(self, key: bytes, count: int) -> int:
        if count != self._count:
            self._known.clear()
            self._count = count
        found = self._known.get(key)
        if found is None:
            found = partition_for_key(key, count)
            if len(key) <= KEY_BYTES_CACHED_MAX:
                if len(self._known) >= KEYS_CACHED_MAX:
                    self._known.clear()
                self._known[key] = found
        return found


class StickyPartition:
    """Sticky partition of one topic."""

    __slots__ = ("_adaptive", "_batch_bytes", "_load", "_randomness", "partition", "produced_bytes")

    def __init__(
        self, load: TopicLoad, batch_bytes: int, randomness: Randomness, *, adaptive: bool = True
    ) -> None:
        self._load = load
        self._batch_bytes = batch_bytes
        self._randomness = randomness
        self._adaptive = adaptive
        self.produced_bytes = 0
        self.partition = self._draw()

    def produced(self, size_bytes: int, *, batch_is_full: bool) -> None:
        """Count a record. The partition changes when a batch is full, or after twice its size."""
        self.produced_bytes += size_bytes
        limit = self._batch_bytes if batch_is_full else 2 * self._batch_bytes
        if self.produced_bytes >= limit:
            self.move()

    def move(self) -> None:
        """Go to another partition."""
        self.produced_bytes = 0
        self.partition = self._draw()

    def _draw(self) -> int:
        load = self._load
        partitions = load.available() or range(load.partition_count)
        if len(partitions) == 1:
            return partitions[0]
        if not self._adaptive:
            return partitions[self._randomness.randrange(0, len(partitions))]
        lengths = [load.queued(partition) for partition in partitions]
        longest = max(lengths)
        point = self._randomness.randrange(0, sum(longest - length + 1 for length in lengths))
        for partition, length in zip(partitions, lengths, strict=True):
            point -= longest - length + 1
            if point < 0:
                return partition
        raise AssertionError("the point is below the sum")


class RoundRobin:
    """Partitions in turn, those without a leader left out."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def partition(self, topic: str, load: TopicLoad) -> int:
        partitions = load.available() or range(load.partition_count)
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return partitions[turn % len(partitions)]


MURMUR2: Final = "murmur2"
ROUND_ROBIN: Final = "round-robin"


def check_partitioner(setting: Any) -> None:
    """Raise INVALID_CONFIG unless `partitioner.class` names a partitioner, or is a function."""
    if setting is None or setting in (MURMUR2, ROUND_ROBIN) or callable(setting):
        return
    raise InvalidConfig(f"partitioner.class is {MURMUR2}, {ROUND_ROBIN} or a function, not {setting!r}")


def check_partition(topic: str, partition: int, count: int) -> int:
    """`partition`, if the topic has it."""
    if 0 <= partition < count:
        return partition
    raise InvalidPartitions(f"topic {topic} has partitions 0 to {count - 1}, not {partition}")
