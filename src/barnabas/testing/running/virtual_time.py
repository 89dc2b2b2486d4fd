"""Time of a test's brokers that a test moves forward.

    with run_broker(time="virtual") as broker:
        broker.time.advance("45s")      # sessions expire, transactions time out, retention deletes

Time passes as usual and jumps in addition, so clients that poll and wait notice nothing. The brokers' timers
within a jump run in their order, each at its own moment: `advance` goes from timer to timer. Clients have
their own clocks. A heartbeat that comes during a jump counts at its moment, as any request does. So a member
surely misses its session only in a jump of several timeouts, or when a rule stops its heartbeats.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from typing import Any, Final

from barnabas.core.clock import SystemClock
from barnabas.node.background_threads import ThreadBackground
from barnabas.testing.faults.rules import milliseconds
from barnabas.testing.running.other_threads import check_other_loop, check_process

__all__ = ["VirtualTime"]

_TURNS_PER_TIMER: Final = 3
"""A callback plans another one, and that one a task: they run before time goes on."""
_THREADS_S_MAX: Final = 1.0
"""Longest wait for the threads at one moment: a stalled disk does not stop time."""
_MOMENTS_MAX: Final = 1_000
"""From here on, moments that have passed make room for new ones."""
_JUMP_S_MAX: Final = 60.0
"""A loop that does not answer for so long is stuck, and the test learns of it."""


class VirtualClock:
    """The system's time, and the jumps on top of it."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self.jumped_ms = 0.0

    def now_ms(self) -> int:
        return self._system.now_ms() + round(self.jumped_ms)

    def monotonic_ms(self) -> float:
        return self._system.monotonic_ms() + self.jumped_ms


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop whose timers follow a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.background: ThreadBackground | None = None
        """Threads of the broker, once it has them."""
        self.is_held = False
        """Whether the loop stands still, as that of a paused broker does."""
        self._watched: asyncio.Future[None] | None = None
        """Done when the threads are idle."""
        self._moments: list[float] = []
        """When timers are due, cancelled ones included."""
        super().__init__()

    def time(self) -> float:
        return self.clock.monotonic_ms() / 1_000

    def call_at(  # type: ignore[override]  # the types of the arguments are asyncio's own
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if len(self._moments) >= _MOMENTS_MAX:
            self._forget_past()
        heapq.heappush(self._moments, when)
        return super().call_at(when, callback, *args, context=context)

    def threads(self, loop: asyncio.AbstractEventLoop, count: int) -> ThreadBackground:
        """Make the broker's background threads, and remember them."""
        self.background = ThreadBackground(loop, count)
        self.background.on_idle = self._end_watch
        return self.background

    def next_moment_ms(self) -> float:
        """Time of the next timer, also if it is overdue. Other threads may ask: it is one look at a list."""
        try:
            return self._moments[0] * 1_000
        except IndexError:
            return math.inf

    async def settle(self) -> None:
        """Run what is due, and what follows from it."""
        for _ in range(_TURNS_PER_TIMER):
            await asyncio.sleep(0)
        await self._until_threads_are_idle()
        self._forget_past()

    async def jump(self, target_ms: float, others: Sequence[VirtualLoop] = ()) -> None:
        """Let time pass from timer to timer, until another loop has the next one."""
        self._forget_past()
        while (now_ms := self.clock.monotonic_ms()) < target_ms:
            next_ms = self.next_moment_ms()
            if any(each.next_moment_ms() < next_ms for each in others):
                return
            self.clock.jumped_ms += max(0.0, min(next_ms, target_ms) - now_ms)
            await self.settle()

    def _forget_past(self) -> None:
        now_s = self.time()
        while self._moments and self._moments[0] <= now_s:
            heapq.heappop(self._moments)

    async def _until_threads_are_idle(self) -> None:
        """Let threads finish what a timer began, such as a sync: they know no virtual time."""
        if self.background is None or self.background.is_idle:
            return
        self._watched = self.create_future()
        # Not by `call_later`, which would make it a moment to jump to.
        late = super().call_at(self.time() + _THREADS_S_MAX, self._end_watch)
        try:
            await self._watched
        finally:
            late.cancel()

    def _end_watch(self) -> None:
        if self._watched is not None and not self._watched.done():
            self._watched.set_result(None)


class VirtualTime:
    """Handle of a test on the time of its brokers, which have one clock and a loop each."""

    def __init__(self, clock: VirtualClock, loops: Callable[[], Iterable[VirtualLoop]]) -> None:
        self._clock = clock
        self._loops = loops
        self._process = os.getpid()
        self._advancing = threading.Lock()

    def now_ms(self) -> int:
        """The brokers' time, in milliseconds since 1970."""
        return self._clock.now_ms()

    def advance(self, by: str | float) -> None:
        """Let time pass: "45s", "10m", "2h" or a number of seconds. Returns when everything due is done. Two
        jumps never overlap."""
        by_ms = milliseconds(by)
        check_process("the broker", self._process)
        for each in self._running():
            check_other_loop("the broker", each)
        with self._advancing:
            self._advance_to(self._clock.monotonic_ms() + by_ms)

    def _advance_to(self, target_ms: float) -> None:
        self._settle(self._running())  # what is due already, and forgotten moments
        while self._clock.monotonic_ms() < target_ms:
            running = sorted(self._running(), key=VirtualLoop.next_moment_ms)
            if not running:
                self._clock.jumped_ms += target_ms - self._clock.monotonic_ms()
                return
            # The loop whose timer is next jumps by itself, without a turn of this thread for each timer.
            first, *others = running
            asyncio.run_coroutine_threadsafe(first.jump(target_ms, others), first).result()
        self._settle(self._running())

    def _running(self) -> list[VirtualLoop]:
        return [each for each in self._loops() if not each.is_held]

    def _settle(self, loops: Iterable[VirtualLoop]) -> None:
        for settled in [asyncio.run_coroutine_threadsafe(each.settle(), each) for each in loops]:
            settled.result(_JUMP_S_MAX)
