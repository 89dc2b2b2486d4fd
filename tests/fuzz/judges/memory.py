"""The broker's memory stays within a bound for every byte received, and comes back when connections close.

A process keeps what it once took from the system, so the bound after closing is not the size at the start. It
holds for the whole life of a broker, however many sequences there are: growth that goes on is seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.fuzz.world import World

GROWTH_BYTES_MAX = 64 << 20
PER_RECEIVED_BYTE_MAX = 40
KEPT_BYTES_MAX = 160 << 20
SETTLING_S = 2.0


class Memory:
    def __init__(self, world: World) -> None:
        self._world = world
        self._began_bytes = world.resident_bytes()
        self._sequence_bytes = self._began_bytes
        self.received_bytes = 0

    def begin(self) -> None:
        self._sequence_bytes = self._world.resident_bytes()

    def begin_again(self) -> None:
        """In another process, after a restart."""
        self._began_bytes = self._sequence_bytes = self._world.resident_bytes()

    def after(self, received_bytes: int) -> Iterator[str]:
        """Right after a sequence, when its connections are still being closed."""
        self.received_bytes += received_bytes
        grown = self._world.resident_bytes() - self._sequence_bytes
        allowed = GROWTH_BYTES_MAX + PER_RECEIVED_BYTE_MAX * received_bytes
        if grown > allowed:
            yield f"memory: {grown >> 20} MB more after {received_bytes >> 10} KB were received"

    def at_the_end(self) -> Iterator[str]:
        deadline_s = time.monotonic() + SETTLING_S
        while (kept := self._world.resident_bytes() - self._began_bytes) > KEPT_BYTES_MAX:
            if time.monotonic() > deadline_s:
                yield f"memory kept: {kept >> 20} MB more than at the start, with all connections closed"
                return
            time.sleep(0.1)
