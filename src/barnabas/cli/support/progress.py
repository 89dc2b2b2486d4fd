"""Progress lines on standard error, so that no terminal stays silent.

A stage is printed when it begins, and again while it lasts, with its seconds. Standard output holds only the
result of the command.
"""

from __future__ import annotations

import sys
import threading
from typing import TextIO

from barnabas.core.clock import Clock, SystemClock

AGAIN_S = 5.0
"""Longest pause between two lines during the first minute; later the pauses grow."""
GROWS_AFTER_S = 60.0


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

    def enter(self, what: str) -> None:
        """End the current stage and begin this one."""
        self.leave()
        if self._is_quiet:
            return
        self._say(f"{what} …")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, args=(what, self._ended), daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """End the current stage."""
        self._ended.set()
        self._thread = None

    def _repeat(self, what: str, ended: threading.Event) -> None:
        begun_ms = self._clock.monotonic_ms()
        pause_s = AGAIN_S
        while not ended.wait(pause_s):
            waited_s = (self._clock.monotonic_ms() - begun_ms) / 1_000
            self._say(f"{what} … {waited_s:.0f} s")
            pause_s = AGAIN_S if waited_s < GROWS_AFTER_S else pause_s * 2

    def _say(self, text: str) -> None:
        print(f"{self._subject}: {text}", file=self._out or sys.stderr, flush=True)
