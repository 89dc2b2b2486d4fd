"""Memory pool for large requests that are arriving: `queued.max.request.bytes` (KIP-72).

A large request takes its whole size from the pool before more of it is received. It gives it back when it is
dispatched or its connection ends. While the pool is empty no further large request is read; its connection
queues, and TCP holds its client back. As in Kafka the last request may take more than is left, so that a
request of any size gets in eventually.

Small requests take nothing: they are dispatched from the buffer that all connections share.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from barnabas.core.reporting.metrics import Metrics

NO_BOUND = -1


class MemoryWaiter(Protocol):
    """A connection that waits to receive a large request."""

    def memory_granted(self) -> None: ...


class RequestMemory:
    __slots__ = ("_bytes_max", "_line", "used_bytes")

    def __init__(self, bytes_max: int, metrics: Metrics) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0
        self._line: deque[tuple[MemoryWaiter, int]] = deque()
        metrics.gauge(
            "kafka_network_memory_pool_used",
            "Bytes of large requests that are arriving.",
            lambda: self.used_bytes,
        )
        metrics.gauge(
            "kafka_network_memory_pool_waiting",
            "Connections whose large request waits for memory.",
            lambda: len(self._line),
        )

    @property
    def _has_room(self) -> bool:
        return self._bytes_max == NO_BOUND or self.used_bytes < self._bytes_max

    def take(self, waiter: MemoryWaiter, size_bytes: int) -> bool:
        """True if the request may be received now; otherwise `memory_granted` is called later."""
        if self._has_room and not self._line:
            self.used_bytes += size_bytes
            return True
        self._line.append((waiter, size_bytes))
        return False

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        while self._line and self._has_room:
            waiter, wanted_bytes = self._line.popleft()
            self.used_bytes += wanted_bytes
            waiter.memory_granted()

    def leave(self, waiter: MemoryWaiter) -> None:
        """Remove a waiter whose connection has ended."""
        self._line = deque(each for each in self._line if each[0] is not waiter)
