"""Threads for the blocking work of the event loop (`core.scheduler.Background`).

The background starts a thread when there is more work than threads, up to a maximum. The operating system may
refuse a thread for a while (the pids limit of a container, `ulimit -u`). Accepted work then stays in the
queue until a thread takes it. So `submit` never raises for lack of a thread, and every caller gets its
outcome, if later than usual. With an exception, each caller would have to undo its own bookkeeping, and one
that forgets it would wait forever.

The loop owns the counts; the queue is all that threads share with it. (`ThreadPoolExecutor` raises when a
thread cannot start, and leaves the work in its queue without an outcome.)
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from barnabas.core.clock import SystemClock
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import NotBegun

T = TypeVar("T")
logger = logging.getLogger(__name__)

START_RETRY_S: Final = 0.1
"""Delay before the next attempt to start a thread, if there is none at all."""

_Work = Callable[[], None]


class ThreadBackground:
    """`core.scheduler.Background` on threads. System calls in them release the GIL."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._threads = threads
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._running: set[threading.Thread] = set()
        self._staying = 0
        """Threads without an order to end."""
        self._undelivered = 0
        self.on_idle: Callable[[], None] = lambda: None
        """Runs on the loop when every caller has its outcome."""
        self._retry: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Future[None] | None = None
        self._limited_log = RateLimitedLogger(logger, SystemClock(), lines_per_second=1)

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def is_idle(self) -> bool:
        """Whether every caller has its outcome."""
        return not self._undelivered

    def resize(self, threads: int) -> None:
        """Set the maximum of threads. A thread finishes its current work before it ends."""
        self._threads = threads
        self._send_away(self._staying - threads)

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        if self._all_gone is not None:
            raise NotBegun("the background threads have ended")

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - the outcome is handed on
                self._post(partial(self._deliver, failed, error))
            else:
                self._post(partial(self._deliver, done, result))

        self._undelivered += 1
        self._queue.put(run)
        self._grow()

    def _deliver(self, callback: Callable[[T], None], outcome: T) -> None:
        self._undelivered -= 1
        callback(outcome)
        if not self._undelivered:
            self.on_idle()

    def _post(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # a loop that is closed has no use for the outcome
            self._loop.call_soon_threadsafe(callback)

    def _grow(self) -> None:
        """Start a thread if there is more work than threads."""
        if self._staying >= min(self._threads, self._undelivered):
            return
        thread = self._new_thread()
        try:
            thread.start()
        except RuntimeError as error:
            self._limited_log.warn(
                "threads",
                "cannot start a thread (%s): background work waits, with %d threads of %d; raise the limit"
                " of processes (ulimit -u, pids.max)",
                error,
                self._staying,
                self._threads,
            )
            if not self._staying and self._retry is None:
                self._retry = self._loop.call_later(START_RETRY_S, self._grow_again)
            return
        self._running.add(thread)
        self._staying += 1

    def _new_thread(self) -> threading.Thread:
        """A thread that serves the queue, not started yet."""
        return threading.Thread(target=self._serve, name="background", daemon=True)

    def _grow_again(self) -> None:
        self._retry = None
        self._grow()

    def _send_away(self, count: int) -> None:
        for _ in range(count):
            self._staying -= 1
            self._queue.put(None)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # it may hold a file open, and the next work may come late
        thread = threading.current_thread()
        self._post(lambda: self._gone(thread))

    def _gone(self, thread: threading.Thread) -> None:
        self._running.discard(thread)
        if self._all_gone is not None and not self._running and not self._all_gone.done():
            self._all_gone.set_result(None)

    async def close(self) -> None:
        """Finish the submitted work, and deliver its outcome, before the loop ends."""
        if self._all_gone is not None:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._all_gone = self._loop.create_future()
        self._send_away(self._staying)
        if self._running:
            await self._all_gone
        self._finish_here()
        await asyncio.sleep(0)

    def _finish_here(self) -> None:
        """Run the work that never got a thread."""
        with suppress(Empty):
            while True:
                work = self._queue.get_nowait()
                if work is not None:
                    work()
