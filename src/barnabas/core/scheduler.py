"""Interfaces for timers and for blocking work off the event loop.

The event loop owns all broker state. Two kinds of work leave the loop: work at a later time (`Scheduler`),
and work that blocks in a system call (`Background`: fsync, recovery, deleting files). `node` implements them
with the loop's timers and a small thread pool; the simulator implements them from its seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Runs callables on the owner's thread, later."""

    def after(self, delay_ms: float, task: Callable[[], None]) -> Cancellable:
        """Run `task` once, `delay_ms` from now."""
        ...


class Scheduler(Timers, Protocol):
    """One-shot and periodic timers."""

    def every(
        self, period_ms: float, task: Callable[[], None], *, delay_ms: float | None = None
    ) -> Cancellable:
        """Run `task` periodically; an error in one run is logged and does not stop the next."""
        ...


class Background(Protocol):
    """Runs blocking work off the loop and brings the outcome back onto it."""

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Call `work` in another thread, then exactly one of `done` and `failed` on the loop.

        Work waits until a thread is free. NotBegun after the background is closed."""
        ...


class NotBegun(RuntimeError):
    """A background did not take the work, and no part of it has run."""


class BoundedBackground:
    """Runs at most `works_max` works at a time on another background and queues the rest. Work that the other
    background rejects has failed."""

    def __init__(self, background: Background, works_max: int) -> None:
        self._background = background
        self._free = works_max
        self._line: deque[Callable[[], None]] = deque()
        self._is_line_moving = False

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        if self._free:
            self._begin(work, done, failed)
        else:
            self._line.append(lambda: self._begin(work, done, failed))

    def _begin(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        def finished(result: T) -> None:
            try:
                self._next()
            finally:
                done(result)

        def did_not(error: BaseException) -> None:
            try:
                self._next()
            finally:
                failed(error)

        self._free -= 1
        try:
            self._background.submit(work, finished, did_not)
        except RuntimeError as error:
            did_not(error)

    def _next(self) -> None:
        self._free += 1
        if self._is_line_moving:
            return  # the work failed at once inside the loop below: recursion would make a deep stack
        self._is_line_moving = True
        try:
            while self._line and self._free:
                self._line.popleft()()
        finally:
            self._is_line_moving = False


class InlineBackground:
    """Runs the work at once, on the caller's thread: for tools without an event loop."""

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - the outcome is handed on
            failed(error)
        else:
            done(result)
