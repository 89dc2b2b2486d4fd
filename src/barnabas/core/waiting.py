"""Waiting inside coroutines: signals, locks, deadlines, and work off the loop.

This is the one module of `controller`, `cluster` and `config` that knows asyncio. The simulator brings an
event loop on virtual time, so the loop itself is the seam (ADR 27, ADR 31).
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Lock
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from barnabas.core.scheduler import Background, Scheduler

__all__ = ["Future", "Lock", "Signal", "Task", "elsewhere", "future", "gather", "turn_over", "within"]

T = TypeVar("T")


def future() -> Future[Any]:
    return asyncio.get_running_loop().create_future()


class Task:
    """A coroutine that runs beside its owner. The owner keeps it, and stops it."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    async def stop(self) -> None:
        """Cancel it, if it has not ended, and wait until it has."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))


class Signal:
    """Wakes its single waiter, again and again."""

    def __init__(self) -> None:
        self._future: Future[None] = future()

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Wait until the signal is set, and reset it."""
        await self._future
        self._future = future()

    async def wait_at_most(self, timeout_ms: float, scheduler: Scheduler) -> None:
        timer = scheduler.after(timeout_ms, self.set)
        try:
            await self.wait()
        finally:
            timer.cancel()


async def turn_over() -> None:
    """Wait until every callback that was ready at the call has run."""
    over = Signal()

    async def run() -> None:
        over.set()

    task = Task(run())
    try:
        await over.wait()
    finally:
        await task.stop()


async def elsewhere(work: Callable[[], T], background: Background) -> T:
    """Run blocking or long work off the loop, and return its outcome."""
    outcome: Future[T] = future()

    def done(result: T) -> None:
        if not outcome.done():
            outcome.set_result(result)

    def failed(error: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    background.submit(work, done, failed)
    return await outcome


async def within(timeout_ms: float, work: Coroutine[Any, Any, None], scheduler: Scheduler) -> bool:
    """Whether `work` ended in time. It is cancelled if not; an error that it raises is raised here."""
    over = Signal()
    errors: list[Exception] = []
    is_over = False

    async def run() -> None:
        nonlocal is_over
        try:
            await work
        except Exception as error:  # noqa: BLE001 - raised below, by the caller's coroutine
            errors.append(error)
        is_over = True
        over.set()

    task = Task(run())
    try:
        await over.wait_at_most(timeout_ms, scheduler)
    finally:
        await task.stop()
    if errors:
        raise errors[0]
    return is_over


async def gather(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The outcomes of coroutines that run together. The first error is raised when all have ended."""
    outcomes: dict[int, T] = {}
    errors: list[Exception] = []
    over = Signal()

    async def run(index: int, work: Coroutine[Any, Any, T]) -> None:
        try:
            outcomes[index] = await work
        except Exception as error:  # noqa: BLE001 - raised below, by the caller's coroutine
            errors.append(error)
        over.set()

    tasks = [Task(run(index, work)) for index, work in enumerate(works)]
    try:
        while len(outcomes) + len(errors) < len(tasks):
            await over.wait()
    finally:
        for task in tasks:
            await task.stop()
    if errors:
        raise errors[0]
    return [outcomes[index] for index in range(len(tasks))]
