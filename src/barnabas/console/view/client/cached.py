"""Answers that are kept for a while. Viewers that ask at the same time share one question to the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from barnabas.core.clock import Clock

T = TypeVar("T")


class Cached(Generic[T]):
    """Value that `load` brings. One older than `fresh_ms` is loaded again before it is used."""

    def __init__(self, load: Callable[[], Awaitable[T]], clock: Clock, *, fresh_ms: float) -> None:
        self._load = load
        self._clock = clock
        self._fresh_ms = fresh_ms
        self._value: T
        self._loaded_ms = float("-inf")
        self._loading: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._clock.monotonic_ms() - self._loaded_ms < self._fresh_ms:
            return self._value
        if self._loading is None:
            self._loading = asyncio.create_task(self._run())
            self._loading.add_done_callback(self._done)
        return await asyncio.shield(self._loading)

    def forget(self) -> None:
        """Load again before the next use: something has changed."""
        self._loaded_ms = float("-inf")

    async def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

    async def _run(self) -> T:
        started_ms = self._clock.monotonic_ms()
        value = await self._load()
        self._value, self._loaded_ms = value, started_ms
        return value

    def _done(self, task: asyncio.Task[T]) -> None:
        self._loading = None
        if not task.cancelled():
            task.exception()  # the callers have it
