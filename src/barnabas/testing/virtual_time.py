"""Time of a test's broker that a test moves forward.

    with run_broker(time="virtual") as broker:
        broker.time.advance("45s")      # sessions expire, transactions time out, retention deletes

Time passes as usual and jumps in addition, so clients that poll and wait notice nothing. The broker's timers
within a jump run in their order, each at its own moment: `advance` goes from timer to timer. Clients have
their own clocks, and a member cannot send heartbeats during a jump: a jump beyond its session timeout expires
it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

from barnabas.core.clock import SystemClock
from barnabas.node.background_threads import ThreadBackground
from barnabas.testing.fault_rules import milliseconds

_TURNS_PER_TIMER: Final = 3
"""A callback plans another one, and that one a task: they run before time goes on."""
_LOOKS_MAX: Final = 500
_MOMENTS_MAX: Final = 1_000
"""From here on, moments that have passed make room for new ones."""
_LOOK_S: Final = 0.002


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
        return self.background

    async def jump(self, by_ms: float) -> None:
        """Let this much time pass, from timer to timer."""
        target_ms = self.clock.monotonic_ms() + by_ms
        while (now_ms := self.clock.monotonic_ms()) < target_ms:
            self._forget_past()
            next_ms = self._moments[0] * 1_000 if self._moments else target_ms
            self.clock.jumped_ms += max(0.0, min(next_ms, target_ms) - now_ms)
            for _ in range(_TURNS_PER_TIMER):
                await asyncio.sleep(0)
            await self._until_threads_are_idle()

    def _forget_past(self) -> None:
        now_s = self.time()
        while self._moments and self._moments[0] <= now_s:
            heapq.heappop(self._moments)

    async def _until_threads_are_idle(self) -> None:
        """Let threads finish what a timer began, such as a sync: they know no virtual time. A stalled disk
        does not stop time."""
        for _ in range(_LOOKS_MAX):
            if self.background is None or self.background.is_idle:
                return
            await asyncio.sleep(_LOOK_S)


class VirtualTime:
    """Handle of a test on the time of its broker."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def advance(self, by: str | float) -> None:
        """Let time pass: "45s", "10m", "2h" or a number of seconds. Returns when all that was due is done."""
        asyncio.run_coroutine_threadsafe(self._loop.jump(milliseconds(by)), self._loop).result()
