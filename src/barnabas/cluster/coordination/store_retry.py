"""Retries for a coordination store that does not answer.

After a lost connection the session may still be alive, and it is open whether the last operation took effect.
So the operation is repeated once the store is back, and fails only when the session is over. The caller of a
repeated operation must be able to recognise that an earlier attempt took effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from barnabas.cluster.coordination.contract import (
    OPERATION_RETRY_MS,
    ConnectionLoss,
    Coordination,
    SessionState,
)
from barnabas.core.scheduler import Scheduler
from barnabas.core.waiting import Signal

T = TypeVar("T")


class StoreRetry:
    """Repeats operations after a lost connection, at once when the state of the session changes."""

    def __init__(self, znodes: Coordination, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[Signal, None] = {}
        znodes.add_listener(self._on_state)

    async def until_answered(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Repeat an operation until the store answers. Its refusals and the end of the session raise."""
        while True:
            try:
                return await operation()
            except ConnectionLoss:
                await self._wait()

    async def _wait(self) -> None:
        changed = Signal()
        self._waiting[changed] = None
        try:
            await changed.wait_at_most(OPERATION_RETRY_MS, self._scheduler)
        finally:
            del self._waiting[changed]

    def _on_state(self, state: SessionState) -> None:  # noqa: ARG002 - any change is worth an attempt
        for changed in self._waiting:
            changed.set()
