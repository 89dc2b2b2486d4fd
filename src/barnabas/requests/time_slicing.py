"""Time slicing: work that is too long for one turn of the loop.

One loop handles the requests of all clients, so a long request must not run at once. One frame may name ten
thousand topics while other clients wait. Such work is a generator that yields wherever it may pause. It
begins at once, and nearly always ends in the same turn. After TURN_MS_MAX it goes to the end of a queue. Each
turn of the loop runs one piece of queued work. So a hundred long requests delay a short one no more than a
single one does.

A request that has used REQUEST_LOOP_MS_MAX over all turns is aborted. Slices keep a long request from
delaying others; this limit keeps it from running forever.

`core.steps` says what a generator may count on at a `yield`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.core.clock import Clock
from barnabas.core.errors import RequestTimedOut
from barnabas.core.limits import REQUEST_LOOP_MS_MAX, TURN_MS_MAX
from barnabas.core.steps import Sliced, advance_until
from barnabas.requests.request_time import Stopwatch


class _Queued(NamedTuple):
    work: Sliced[Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    watch: Stopwatch | None


def _nothing() -> Sliced[None]:
    return
    yield


class Slices:
    """Runs generators, a slice of one of them in each turn."""

    def __init__(self, clock: Clock, call_soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._now_ms = clock.monotonic_ms
        self._call_soon = call_soon
        self._queue: deque[_Queued] = deque()
        self._has_turn = False

    def run(
        self,
        work: Sliced[Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        waits: Callable[[], None],
        watch: Stopwatch | None = None,
    ) -> None:
        """Begin `work` now.

        `waits` is called if the work continues in later turns. In the end exactly one of `done`, with the
        result, and `failed` is called. The watch runs in the turns of the work and pauses between them; at
        the end it still runs.
        """
        queued = _Queued(work, done, failed, watch)
        if self._go_on(queued):
            return
        waits()
        self._queue.append(queued)
        self._schedule()

    def later(self) -> asyncio.Future[None]:
        """For a coroutine: done when its next turn comes."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def come(_: object) -> None:
            if not turn.done():
                turn.set_result(None)

        self._queue.append(_Queued(_nothing(), come, come, None))
        self._schedule()
        return turn

    @property
    def waiting(self) -> int:
        """Number of unfinished pieces of work."""
        return len(self._queue)

    def close(self) -> None:
        """Drop the unfinished work."""
        while self._queue:
            self._queue.popleft().work.close()

    def _schedule(self) -> None:
        """Schedule one turn at most: the end of one piece of work may begin another."""
        if self._has_turn or not self._queue:
            return
        self._has_turn = True
        call_soon = self._call_soon or asyncio.get_running_loop().call_soon
        call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._has_turn = False
        if not self._queue:
            return
        queued = self._queue.popleft()
        try:
            if not self._go_on(queued):
                self._queue.append(queued)
        except Exception as error:  # noqa: BLE001 - a fault in the response, which no caller handles
            queued.failed(error)
        finally:
            self._schedule()

    def _go_on(self, queued: _Queued) -> bool:
        """Run a slice; True when the work is over."""
        now_ms, watch = self._now_ms, queued.watch
        at_ms = now_ms()
        if watch is not None:
            watch.resume(at_ms)
        try:
            ended = advance_until(queued.work, now_ms, at_ms + TURN_MS_MAX)
            if ended is None:
                if watch is not None:
                    watch.pause(now_ms())
                    if watch.spent_ms > REQUEST_LOOP_MS_MAX:
                        raise RequestTimedOut(f"the request took {REQUEST_LOOP_MS_MAX:.0f} ms of the broker")
                return False
        except Exception as error:  # noqa: BLE001 - passed to the caller's `failed`
            queued.work.close()
            queued.failed(error)
            return True
        queued.done(ended.result)
        return True
