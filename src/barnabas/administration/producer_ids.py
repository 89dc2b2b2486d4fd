"""Producer id allocation: no id is handed out twice, even after a crash.

Ids come in blocks. A conditional write to the coordination store takes a block before its first id is used. A
broker that dies loses the rest of its block, and no other broker ever had it. The next block is fetched
before the present one is used up, so a producer hardly ever waits for the store.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from barnabas.cluster.znodes.layout import ProducerIdBlock
from barnabas.core.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable
from barnabas.core.waiting import Signal, Task

logger = logging.getLogger(__name__)

PREFETCH_BELOW = 100
"""The next block is fetched when the present one has fewer ids left than this."""


class ProducerIds:
    """Producer ids from blocks; `allocate` takes a block from the store."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._ids = iter(range(0))
        self._left = 0
        self._next_block: range | None = None
        self._fetching: Task | None = None
        self._waiting: list[Signal] = []

    def take(self) -> int | None:
        """Next id, or None if none is available without waiting."""
        if not self._left and self._next_block is not None:
            self._ids, self._left = iter(self._next_block), len(self._next_block)
            self._next_block = None
        if self._left < PREFETCH_BELOW:
            self._prefetch()
        if not self._left:
            return None
        self._left -= 1
        return next(self._ids)

    def take_now(self) -> int:
        """Next id without waiting. Raises a retriable error if none is available."""
        producer_id = self.take()
        if producer_id is None:
            raise CoordinatorLoadInProgress("producer ids are being fetched from the coordination store")
        return producer_id

    @property
    def has_any(self) -> bool:
        return bool(self._left) or self._next_block is not None

    async def next(self) -> int:
        """Next id, waiting for the store if necessary."""
        while True:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            await self.fetched()

    async def fetched(self) -> None:
        """Wait until ids are available."""
        if self.has_any:
            return
        self._prefetch()
        fetched = Signal()
        self._waiting.append(fetched)
        await fetched.wait()
        if not self.has_any:
            raise CoordinatorNotAvailable("no producer id could be allocated from the coordination store")

    async def close(self) -> None:
        if self._fetching is not None:
            await self._fetching.stop()

    def _prefetch(self) -> None:
        if self._fetching is None and self._next_block is None:
            self._fetching = Task(self._fetch())

    async def _fetch(self) -> None:
        try:
            block = await self._allocate()
            self._next_block = range(block.first, block.last + 1)
        except Exception:
            logger.exception("producer id block could not be allocated; the next request tries again")
        finally:
            self._fetching = None
            waiting, self._waiting = self._waiting, []
            for fetched in waiting:
                fetched.set()
