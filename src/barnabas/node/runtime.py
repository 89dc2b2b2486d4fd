"""Timers on the event loop, and the driver of the purgatory's timer.

This is `core.scheduler` on asyncio; threads are in `background_threads`. Scheduled and background work
returns to the thread of the loop, so no state needs a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from barnabas.core.clock import Clock
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.scheduler import Background, Cancellable
from barnabas.purgatory.timer import Timer


class _Repeating:
    """A task that schedules its next run after each run."""

    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float, task: Callable[[], None]) -> None:
        self._loop = loop
        self._period_s = period_s
        self._task = task
        self._handle: asyncio.TimerHandle | None = None
        self._is_cancelled = False

    def start(self, delay_s: float) -> None:
        self._handle = self._loop.call_later(delay_s, self._run)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._handle is not None:
            self._handle.cancel()

    def _run(self) -> None:
        _guarded(self._task)
        if not self._is_cancelled:
            self.start(self._period_s)


class LoopScheduler:
    """`core.scheduler.Scheduler` on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._repeating: list[_Repeating] = []

    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        return self._loop.call_later(delay_ms / 1_000, _guarded, task)

    def every(
        self, period_ms: float, task: Callable[[], None], *, delay_ms: float | None = None
    ) -> Cancellable:
        repeating = _Repeating(self._loop, period_ms / 1_000, task)
        repeating.start((period_ms if delay_ms is None else delay_ms) / 1_000)
        self._repeating.append(repeating)
        return repeating

    def close(self) -> None:
        for repeating in self._repeating:
            repeating.cancel()


def _guarded(task: Callable[[], None]) -> None:
    with sweeping("a scheduled task", task):
        task()


class Workers(Background, Protocol):
    """A background that its owner resizes and closes."""

    def resize(self, threads: int) -> None: ...
    async def close(self) -> None: ...


MakeWorkers = Callable[[asyncio.AbstractEventLoop, int], Workers]


class TimerDriver:
    """Wakes the purgatory's timer exactly when its next bucket is due; idle means no wake-ups."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, timer: Timer) -> None:
        self._loop = loop
        self._now_ms = clock.monotonic_ms
        self._timer = timer
        self._handle: asyncio.TimerHandle | None = None
        self._is_closed = False
        timer.wake = self._wake_at

    def _wake_at(self, due_ms: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if not self._is_closed:
            delay_s = max(due_ms - self._now_ms(), 0.0) / 1_000
            self._handle = self._loop.call_later(delay_s, self._advance)

    def _advance(self) -> None:
        self._handle = None
        with sweeping("the timer"):
            self._timer.advance()
        due_ms = self._timer.next_expiry_ms()
        if due_ms is not None:
            self._wake_at(due_ms)

    def close(self) -> None:
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()
