"""Waiting for a coordination store that does not answer.

After a lost connection the session may still be alive; nobody knows whether the last operation took
effect. So it is repeated once the store is back, and given up only when the session is over. Whoever
repeats something must be able to recognise its own traces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from barnabas.cluster.coordination import ConnectionLoss, Coordination, SessionState
from barnabas.core.scheduler import Scheduler

T = TypeVar("T")

RETRY_MS: Final = 100


class Patience:
    def __init__(self, znodes: Coordination, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._changed = asyncio.Event()
        znodes.add_listener(self._on_state)

    async def until_answered(self, operation: Callable[[], Awaitable[T]]) -> T:
        """What the store answers, however long it takes; its refusals and the end of the session raise."""
        while True:
            try:
                return await operation()
            except ConnectionLoss:
                await self._wait()

    async def _wait(self) -> None:
        changed = self._changed
        timer = self._scheduler.after(RETRY_MS, changed.set)
        try:
            await changed.wait()
        finally:
            timer.cancel()
            if self._changed is changed:
                self._changed = asyncio.Event()

    def _on_state(self, state: SessionState) -> None:  # noqa: ARG002 - whatever it is, it is news
        self._changed.set()
        self._changed = asyncio.Event()
