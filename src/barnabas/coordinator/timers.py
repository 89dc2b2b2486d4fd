"""The timers of one shard, by key: sessions, rebalances, expiry.

A key has at most one timer; scheduling it again replaces it. What a timer runs is an operation like any
request's: it returns a `Decision` whose records are appended and replayed. When the shard goes, so do
its timers.

An operation whose records could not be written has done nothing, and nobody will ask for it again: one that
`is_retried` comes back after a pause, unless its key is in use again. It must be one that changes nothing
but by its records.

What happens from time to time is asked for by `every`: its next run is arranged before this one begins, so
nothing that a run meets can be the last that is heard of it.

A shard that is thrown away may still be told how something ended that it began. Its timers are closed then:
nothing is arranged or run any more, since the partition may have a new shard already, by which it would be
taken for that one's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from barnabas.coordinator.decision import Decision
from barnabas.purgatory.timer import Timer
from barnabas.purgatory.timing_wheel import TimerTask

RETRY_MS = 500.0
"""The pause before an operation that failed is tried again."""

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
        self, timer: Timer, run: Callable[[Operation, Callable[[], None]], None], leader_epoch: int = 0
    ) -> None:
        self._timer = timer
        self.leader_epoch = leader_epoch
        """The epoch that the shard was elected under, by which others fence what it sends too late."""
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
        """Run the operation again and again; with `delay_ms`, the first time after that."""
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
        """The time of `task` has come; False if another one has taken its place."""
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
