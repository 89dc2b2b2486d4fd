"""Progress lines on standard error, so that no terminal stays silent.

A stage is printed when it begins, and again while it lasts, with its seconds. Standard output holds only the
result of the command.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TextIO

from barnabas.core.clock import Clock, SystemClock

AGAIN_S = 4.0
"""Pause between two lines during the first minute; later the pauses grow."""
GROWS_AFTER_S = 60.0
AGAIN_S_MAX = 60.0
"""Longest pause of all."""
NOTICE_AFTER_S = 3.0
"""A wait that is longer is announced. No command is silent for five seconds, its own start included."""


class Stages:
    def __init__(
        self, subject: str, *, quiet: bool = False, clock: Clock | None = None, out: TextIO | None = None
    ) -> None:
        self._subject = subject
        self._is_quiet = quiet
        self._clock = clock or SystemClock()
        self._out = out
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def enter(self, what: str, *, at_once: bool = True) -> None:
        """End the current stage and begin this one. `at_once=False` prints a short stage not at all."""
        self.leave()
        if self._is_quiet:
            return
        if at_once:
            self.say(f"{what} …")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, args=(what, self._ended), daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """End the current stage."""
        self._ended.set()
        self._thread = None

    def _repeat(self, what: str, ended: threading.Event) -> None:
        begun_ms = self._clock.monotonic_ms()
        pause_s = min(AGAIN_S, NOTICE_AFTER_S)
        while not ended.wait(pause_s):
            waited_s = (self._clock.monotonic_ms() - begun_ms) / 1_000
            self.say(f"{what} … {waited_s:.0f} s")
            pause_s = _next_pause_s(waited_s, pause_s)

    def say(self, text: str) -> None:
        print(f"{self._subject}: {text}", file=self._out or sys.stderr, flush=True)


@asynccontextmanager
async def announced(what: str, subject: str = "barnabas") -> AsyncIterator[None]:
    """Print what is waited for while the block lasts: after some seconds, and again with growing pauses."""
    stages = Stages(subject)

    async def repeat() -> None:
        waited_s, pause_s = 0.0, NOTICE_AFTER_S
        while True:
            await asyncio.sleep(pause_s)
            waited_s += pause_s
            stages.say(f"{what} … {waited_s:.0f} s")
            pause_s = _next_pause_s(waited_s, pause_s)

    repeating = asyncio.get_running_loop().create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()


def _next_pause_s(waited_s: float, pause_s: float) -> float:
    """Pause between two lines about a wait. A pipeline may wait for days, and its terminal shows it."""
    return AGAIN_S if waited_s < GROWS_AFTER_S else min(pause_s * 2, AGAIN_S_MAX)
