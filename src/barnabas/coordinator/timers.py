"""The timers of one shard, by key: sessions, rebalances, expiry.

A key has at most one timer; scheduling it again replaces it. What a timer runs is an operation like any
request's: it returns a `Decision` whose records are appended and replayed. When the shard goes, so do
its timers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from barnabas.coordinator.decision import Decision
from barnabas.purgatory.timer import Timer
from barnabas.purgatory.timing_wheel import TimerTask

Operation = Callable[[], Decision[Any]]


class _Task(TimerTask):
    __slots__ = ("_key", "_operation", "_timers")

    def __init__(self, timers: ShardTimers, key: Hashable, delay_ms: float, operation: Operation) -> None:
        super().__init__(delay_ms)
        self._timers = timers
        self._key = key
        self._operation = operation

    def run(self) -> None:
        timers = self._timers
        if timers.forget(self._key, self):
            timers.run(self._operation)


class ShardTimers:
    __slots__ = ("_tasks", "_timer", "leader_epoch", "run")

    def __init__(self, timer: Timer, run: Callable[[Operation], None], leader_epoch: int = 0) -> None:
        self._timer = timer
        self.leader_epoch = leader_epoch
        """The epoch that the shard was elected under, by which others fence what it sends too late."""
        self._tasks: dict[Hashable, _Task] = {}
        self.run = run

    def schedule(self, key: Hashable, delay_ms: float, operation: Operation) -> None:
        former = self._tasks.get(key)
        if former is not None:
            former.cancel()
        task = self._tasks[key] = _Task(self, key, delay_ms, operation)
        self._timer.add(task)

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
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def __len__(self) -> int:
        return len(self._tasks)
