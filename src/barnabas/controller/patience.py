"""Waiting for a coordination store that does not answer.

After a lost connection the session may still be alive; nobody knows whether the last operation took
effect. So it is repeated once the store is back, and given up only when the session is over. Whoever
repeats something must be able to recognise its own traces.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from barnabas.cluster.coordination import ConnectionLoss, Coordination, SessionState
from barnabas.core.scheduler import Scheduler
from barnabas.core.waiting import Runner, Signal

T = TypeVar("T")

RETRY_MS: Final = 100


class Patience:
    def __init__(self, znodes: Coordination, scheduler: Scheduler, runner: Runner) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._waiting: dict[Signal, None] = {}
        znodes.add_listener(self._on_state)

    async def until_answered(self, operation: Callable[[], Awaitable[T]]) -> T:
        """What the store answers, however long it takes; its refusals and the end of the session raise."""
        while True:
            try:
                return await operation()
            except ConnectionLoss:
                await self._wait()

    async def _wait(self) -> None:
        changed = Signal(self._runner)
        self._waiting[changed] = None
        try:
            await changed.wait_at_most(RETRY_MS, self._scheduler)
        finally:
            del self._waiting[changed]

    def _on_state(self, state: SessionState) -> None:  # noqa: ARG002 - whatever it is, it is news
        for changed in self._waiting:
            changed.set()
