"""Work that is too long for one turn of the loop.

Everybody's requests are handled on one loop, so a request that has much to do must not do it
at once: ten thousand topics may be asked for in one frame, and somebody else waits meanwhile.
Such work is a generator, which stops (`yield`) wherever it may be left for a while. It begins
at once, and nearly always ends there too; when TURN_MS_MAX is over it goes to the end of a
queue. Of all that is queued, one piece of work goes on in each turn of the loop, so that a
hundred long requests delay a short one no more than a single one does.

What a generator must bear is that the world changes at each `yield`: it looks at shared state
afresh after it, or has taken what it needs before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from barnabas.core.clock import Clock
from barnabas.core.limits import TURN_MS_MAX
from barnabas.requests.stopwatch import Stopwatch

Work = Generator[None, None, Any]


class _Queued(NamedTuple):
    work: Work
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    watch: Stopwatch | None


def _nothing() -> Work:
    return
    yield


class Slices:
    """Runs generators, a little of one of them in each turn."""

    def __init__(self, clock: Clock, call_soon: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._now_ms = clock.monotonic_ms
        self._call_soon = call_soon
        self._queue: deque[_Queued] = deque()
        self._has_turn = False

    def run(
        self,
        work: Work,
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        waits: Callable[[], None],
        watch: Stopwatch | None = None,
    ) -> None:
        """Begin `work` now. `waits` is called if it goes on in later turns; in the end exactly one
        of `done`, with what the work returns, and `failed`. The watch runs in the turns of the work
        and stands between them; at the end it still runs."""
        queued = _Queued(work, done, failed, watch)
        if self._go_on(queued):
            return
        waits()
        self._queue.append(queued)
        self._schedule()

    def later(self) -> asyncio.Future[None]:
        """For a coroutine: done when it is its turn to go on for a while."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def come(_: object) -> None:
            if not turn.done():
                turn.set_result(None)

        self._queue.append(_Queued(_nothing(), come, come, None))
        self._schedule()
        return turn

    @property
    def waiting(self) -> int:
        """How many pieces of work are not done."""
        return len(self._queue)

    def close(self) -> None:
        """Give up what is not done."""
        while self._queue:
            self._queue.popleft().work.close()

    def _schedule(self) -> None:
        """One turn, however many ask for it: the end of one piece of work may begin another."""
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
        except Exception as error:  # noqa: BLE001 - a fault in the answer, of which nobody else hears
            queued.failed(error)
        finally:
            self._schedule()

    def _go_on(self, queued: _Queued) -> bool:
        """True when the work is over."""
        now_ms, watch = self._now_ms, queued.watch
        at_ms = now_ms()
        end_ms = at_ms + TURN_MS_MAX
        if watch is not None:
            watch.resume(at_ms)
        try:
            while True:
                next(queued.work)
                at_ms = now_ms()
                if at_ms >= end_ms:
                    if watch is not None:
                        watch.pause(at_ms)
                    return False
        except StopIteration as end:
            result = end.value
        except Exception as error:  # noqa: BLE001 - whoever began the work is told
            queued.failed(error)
            return True
        queued.done(result)
        return True
