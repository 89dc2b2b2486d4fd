"""Time, tasks and threads for real: the loop's timers, a small thread pool, and the purgatory's driver.

These are the interfaces of `core.scheduler` and `core.waiting` on asyncio. Everything that the broker
schedules or sends to the background comes back onto the loop's thread, so nothing needs a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from barnabas.core.clock import Clock
from barnabas.core.scheduler import Background, Cancellable
from barnabas.core.sweeping import sweeping
from barnabas.purgatory.timer import Timer

T = TypeVar("T")


class _Repeating:
    """A task that puts itself back onto the loop after each run."""

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


class LoopTask:
    """`core.waiting.Task` on the event loop."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    async def stop(self) -> None:
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))


class LoopRunner:
    """`core.waiting.Runner` on the event loop. Whoever starts a task keeps it, and stops it."""

    def future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, None]) -> LoopTask:
        return LoopTask(work)


class Workers(Background, Protocol):
    """A background that its owner resizes and closes."""

    def resize(self, threads: int) -> None: ...
    async def close(self) -> None: ...


MakeWorkers = Callable[[asyncio.AbstractEventLoop, int], Workers]


class ThreadBackground:
    """`Workers` on a thread pool. System calls in it release the GIL."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="background")
        self._former: list[ThreadPoolExecutor] = []

    @property
    def threads(self) -> int:
        return self._threads

    def resize(self, threads: int) -> None:
        """Have so many threads from now on; what was submitted before is done by those that there were."""
        if threads == self._threads:
            return
        self._threads = threads
        former, self._pool = self._pool, ThreadPoolExecutor(threads, thread_name_prefix="background")
        former.shutdown(wait=False)
        self._former.append(former)

    def submit(
        self,
        work: Callable[[], T],
        then: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        def done(future: Future[T]) -> None:
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(deliver, future)

        def deliver(future: Future[T]) -> None:
            error = future.exception()
            if error is not None:
                failed(error)
            else:
                then(future.result())

        self._pool.submit(work).add_done_callback(done)

    async def close(self) -> None:
        """Let what was begun finish, and bring its outcome back, before the loop ends."""
        for pool in (*self._former, self._pool):
            await self._loop.run_in_executor(None, pool.shutdown)
        await asyncio.sleep(0)


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
        if self._handle is None:
            due_ms = self._timer.next_expiry_ms()
            if due_ms is not None:
                self._wake_at(due_ms)

    def close(self) -> None:
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()
