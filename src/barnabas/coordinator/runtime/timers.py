"""Timers of one shard, by key: sessions, rebalances, expiry.

A key has at most one timer; scheduling it again replaces it. A timer runs an operation like any request's: it
returns a `Decision` whose records are appended and replayed. Timers end with their shard.

An operation whose records could not be written has done nothing, and no client will repeat it. One that
`is_retried` runs again after a pause, unless its key is in use again. It must change nothing but by its
records.

Periodic operations use `every`. The next run is scheduled before this one begins, so that no failure of a run
ends the series.

A dropped shard may still receive the outcome of something that it began. Its timers are closed then: nothing
is scheduled or run any more. The partition may have a new shard already, and the outcome must not reach that
one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from barnabas.coordinator.runtime.decision import Decision
from barnabas.purgatory.timer import Timer
from barnabas.purgatory.timing_wheel import TimerTask

RETRY_MS = 500.0
"""Pause before a failed operation is retried."""

Operation = Callable[[], Decision[Any]]


class _Task(TimerTask):
    __slots__ = ("_timers", "is_retried", "key", "operation", "period_ms")

    def __init__(
        self,
        timers: ShardTimers,
        key: Hashable,
        delay_ms: float,
        operation: Operation,
        *,
        is_retried: bool,
        period_ms: float | None = None,
    ) -> None:
        super().__init__(delay_ms)
        self.period_ms = period_ms
        self._timers = timers
        self.key = key
        self.operation = operation
        self.is_retried = is_retried

    def run(self) -> None:
        timers = self._timers
        if timers.forget(self.key, self):
            if self.period_ms is not None:
                timers.every(self.key, self.period_ms, self.operation)
            timers.run(self.operation, lambda: timers.retry(self))


class ShardTimers:
    __slots__ = ("_is_closed", "_run", "_tasks", "_timer", "leader_epoch")

    def __init__(
        self, timer: Timer, run: Callable[[Operation, Callable[[], None]], None], leader_epoch: int
    ) -> None:
        self._timer = timer
        self.leader_epoch = leader_epoch
        """Leader epoch of the shard's election, by which others fence its late requests."""
        self._tasks: dict[Hashable, _Task] = {}
        self._run = run
        self._is_closed = False

    def schedule(
        self, key: Hashable, delay_ms: float, operation: Operation, *, is_retried: bool = False
    ) -> None:
        self._put(_Task(self, key, delay_ms, operation, is_retried=is_retried))

    def every(
        self, key: Hashable, period_ms: float, operation: Operation, *, delay_ms: float | None = None
    ) -> None:
        """Run the operation periodically; with `delay_ms`, the first time after that."""
        delay_ms = period_ms if delay_ms is None else delay_ms
        self._put(_Task(self, key, delay_ms, operation, is_retried=False, period_ms=period_ms))

    def _put(self, task: _Task) -> None:
        if self._is_closed:
            return
        self.cancel(task.key)
        self._tasks[task.key] = task
        self._timer.add(task)

    def run(self, operation: Operation, failed: Callable[[], None] = lambda: None) -> None:
        """Run an operation now; `failed` is called if it fails or cannot be written."""
        if not self._is_closed:
            self._run(operation, failed)

    def retry(self, failed: _Task) -> None:
        if failed.is_retried and not self._is_closed and failed.key not in self._tasks:
            self.schedule(failed.key, RETRY_MS, failed.operation, is_retried=True)

    def cancel(self, key: Hashable) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def is_scheduled(self, key: Hashable) -> bool:
        return key in self._tasks

    def forget(self, key: Hashable, task: object) -> bool:
        """Remove the due `task`; False if another one has replaced it."""
        if self._tasks.get(key) is not task:
            return False
        del self._tasks[key]
        return True

    def close(self) -> None:
        self._is_closed = True
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def __len__(self) -> int:
        return len(self._tasks)
