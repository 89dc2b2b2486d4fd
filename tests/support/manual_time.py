"""Clock and scheduler that a test moves by hand."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.scheduler import Cancellable


class ManualClock:
    """A clock that moves only by `advance`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms + int(self._elapsed_ms)

    def monotonic_ms(self) -> float:
        return self._elapsed_ms

    def advance(self, ms: float) -> None:
        assert ms >= 0, "time does not go back"
        self._elapsed_ms += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock forward or back, as an administrator does; no time passes."""
        self._now_ms += ms


class _Task:
    def __init__(self, due_ms: float, task: Callable[[], None], period_ms: float | None) -> None:
        self.due_ms = due_ms
        self.task = task
        self.period_ms = period_ms
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualScheduler:
    """A scheduler on a `ManualClock`: `run_due` runs the tasks that are due."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._tasks: list[_Task] = []

    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        return self._add(delay_ms, task, None)

    def every(
        self, period_ms: float, task: Callable[[], None], *, delay_ms: float | None = None
    ) -> Cancellable:
        return self._add(period_ms if delay_ms is None else delay_ms, task, period_ms)

    def _add(self, delay_ms: float, task: Callable[[], None], period_ms: float | None) -> Cancellable:
        entry = _Task(self._clock.monotonic_ms() + delay_ms, task, period_ms)
        self._tasks.append(entry)
        return entry

    def run_due(self) -> int:
        """Run all due tasks in the order of their times; returns how many ran."""
        ran = 0
        while True:
            now_ms = self._clock.monotonic_ms()
            due = [task for task in self._tasks if not task.cancelled and task.due_ms <= now_ms]
            if not due:
                self._tasks = [task for task in self._tasks if not task.cancelled]
                return ran
            entry = min(due, key=lambda task: task.due_ms)
            if entry.period_ms is None:
                entry.cancelled = True
            else:
                entry.due_ms += entry.period_ms
            entry.task()
            ran += 1
