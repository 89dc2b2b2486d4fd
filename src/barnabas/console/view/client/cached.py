"""Answers that are kept for a while. Viewers that ask at the same time share one question to the cluster.

An answer that took long is kept for longer than it took. On a busy machine, or with very many groups, it
would be old when it arrives, and each page would ask for everything again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from barnabas.core.clock import Clock

T = TypeVar("T")

SLOWNESS: Final = 3.0
"""At most a quarter of the time goes by with loading."""


class Cached(Generic[T]):
    """Value that `load` brings. One older than `fresh_ms`, and than `SLOWNESS` loads take, is loaded again
    before it is used."""

    def __init__(self, load: Callable[[], Awaitable[T]], clock: Clock, *, fresh_ms: float) -> None:
        self._load = load
        self._clock = clock
        self._fresh_ms = fresh_ms
        self._value: T
        self._fresh_until_ms = float("-inf")
        self._loading: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._clock.monotonic_ms() < self._fresh_until_ms:
            return self._value
        if self._loading is None:
            self._loading = asyncio.create_task(self._run())
            self._loading.add_done_callback(self._done)
        return await asyncio.shield(self._loading)

    def forget(self) -> None:
        """Load again before the next use: something has changed."""
        self._fresh_until_ms = float("-inf")

    async def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

    async def _run(self) -> T:
        started_ms = self._clock.monotonic_ms()
        value = await self._load()
        ended_ms = self._clock.monotonic_ms()
        self._value = value
        self._fresh_until_ms = max(started_ms + self._fresh_ms, ended_ms + SLOWNESS * (ended_ms - started_ms))
        return value

    def _done(self, task: asyncio.Task[T]) -> None:
        self._loading = None
        if not task.cancelled():
            task.exception()  # the callers have it
