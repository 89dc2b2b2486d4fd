"""Replication quotas: limit the bytes per second of followers that catch up.

The rate is measured over a sliding window of whole seconds. Only partitions listed in the topic's
`leader.replication.throttled.replicas` (or `follower.…`) count and are held. Replicas in sync are never held:
a quota that removed members from the ISR would do harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.core.clock import Clock
from barnabas.core.ids import BrokerId
from barnabas.core.integers import LONG_MAX
from barnabas.replication.partition.partition import Partition

SECOND_MS = 1_000
SECONDS = 11
"""Length of the sliding window, in seconds."""

EVERY_REPLICA = "*"
UNTHROTTLED = LONG_MAX


class ReplicationThrottle:
    """Quota of one direction. `throttled_replicas` reads its list from a partition's topic configuration."""

    def __init__(
        self,
        clock: Clock,
        rate: Callable[[], int],
        throttled_replicas: Callable[[Partition], tuple[str, ...]],
    ) -> None:
        self._now_ms = clock.monotonic_ms
        self._rate = rate
        self._throttled_replicas = throttled_replicas
        self._seconds: deque[list[int]] = deque()
        """[number of the second, bytes in it]"""
        self._total_bytes = 0

    @property
    def is_unlimited(self) -> bool:
        return self._rate() == UNTHROTTLED

    def record(self, size_bytes: int) -> None:
        second = self._drop_old()
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0])
        self._seconds[-1][1] += size_bytes
        self._total_bytes += size_bytes

    @property
    def is_exceeded(self) -> bool:
        rate = self._rate()
        if rate == UNTHROTTLED:
            return False
        self._drop_old()
        if not self._seconds:
            return False
        elapsed_ms = max(self._now_ms() - self._seconds[0][0] * SECOND_MS, SECOND_MS)
        return self._total_bytes * 1_000 > rate * elapsed_ms

    def applies_to(self, partition: Partition) -> bool:
        """Whether this broker's replica of the partition is listed."""
        return is_listed(
            self._throttled_replicas(partition),
            partition.topic_partition.partition,
            partition.leadership.broker_id,
        )

    def _drop_old(self) -> int:
        second = int(self._now_ms() // SECOND_MS)
        while self._seconds and self._seconds[0][0] <= second - SECONDS:
            self._total_bytes -= self._seconds.popleft()[1]
        return second


def is_listed(throttled: tuple[str, ...], partition: int, broker_id: BrokerId) -> bool:
    """`*`, or pairs `partition:broker`."""
    return bool(throttled) and (EVERY_REPLICA in throttled or f"{partition}:{broker_id}" in throttled)
