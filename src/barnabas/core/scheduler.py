"""Work that happens later, or elsewhere.

The event loop owns all broker state. Two things leave it: work that must happen at a later
time (`Scheduler`) and work that blocks in a system call (`Background`: fsync, recovery,
deleting files). Both are interfaces: `node` implements them with the loop's timers and a
small thread pool, tests implement them by hand, the simulator by its seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from barnabas.core.clock import ManualClock

T = TypeVar("T")


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Runs callables on the owner's thread, later."""

    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        """Run `task` once, `delay_ms` from now."""
        ...


class Scheduler(Timers, Protocol):
    """Likewise, and again and again."""

    def every(
        self, period_ms: float, task: Callable[[], None], *, delay_ms: float | None = None
    ) -> Cancellable:
        """Run `task` again and again; an error in one run is logged and does not stop the next."""
        ...


class Background(Protocol):
    """Runs blocking work off the loop and brings the outcome back onto it."""

    def submit(
        self,
        work: Callable[[], T],
        then: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Call `work` elsewhere; afterwards exactly one of `then` and `failed` here."""
        ...


class BoundedBackground:
    """At most so many works at a time of another background, the rest in line. Work for which there is no
    thread has failed."""

    def __init__(self, background: Background, works_max: int) -> None:
        self._background = background
        self._free = works_max
        self._line: deque[Callable[[], None]] = deque()
        self._is_line_moving = False

    def submit(
        self,
        work: Callable[[], T],
        then: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        if self._free:
            self._begin(work, then, failed)
        else:
            self._line.append(lambda: self._begin(work, then, failed))

    def _begin(
        self,
        work: Callable[[], T],
        then: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        def done(result: T) -> None:
            try:
                self._next()
            finally:
                then(result)

        def did_not(error: BaseException) -> None:
            try:
                self._next()
            finally:
                failed(error)

        self._free -= 1
        try:
            self._background.submit(work, done, did_not)
        except RuntimeError as error:
            did_not(error)

    def _next(self) -> None:
        self._free += 1
        if self._is_line_moving:
            return  # it failed at once: whoever began it goes on, so that a long line is no deep stack
        self._is_line_moving = True
        try:
            while self._line and self._free:
                self._line.popleft()()
        finally:
            self._is_line_moving = False


class InlineBackground:
    """Does the work at once, here: for tests, and for tools that have no loop."""

    def submit(
        self,
        work: Callable[[], T],
        then: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - the outcome is handed on, whatever it is
            failed(error)
        else:
            then(result)


class ManualScheduler:
    """A scheduler on a `ManualClock`: `run_due` runs what has become due."""

    class _Task:
        def __init__(self, due_ms: float, task: Callable[[], None], period_ms: float | None):
            self.due_ms = due_ms
            self.task = task
            self.period_ms = period_ms
            self.cancelled = False

        def cancel(self) -> None:
            self.cancelled = True

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._tasks: list[ManualScheduler._Task] = []

    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        return self._add(delay_ms, task, None)

    def every(
        self, period_ms: float, task: Callable[[], None], *, delay_ms: float | None = None
    ) -> Cancellable:
        return self._add(period_ms if delay_ms is None else delay_ms, task, period_ms)

    def _add(self, delay_ms: float, task: Callable[[], None], period_ms: float | None) -> Cancellable:
        entry = self._Task(self._clock.monotonic_ms() + delay_ms, task, period_ms)
        self._tasks.append(entry)
        return entry

    def run_due(self) -> int:
        """Run everything that is due now, in order of its time; returns how many ran."""
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
