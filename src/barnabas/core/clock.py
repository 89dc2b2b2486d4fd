"""Time is an argument.

Nothing in the broker asks the operating system for the time; it asks the clock it was given.
So a test moves time by hand and a simulation runs an hour in a second. ruff bans the
functions of `time` everywhere but here.

Two kinds of time, never mixed: `now_ms` is the wall clock that goes into records and files
and may jump; `monotonic_ms` only measures distances (timeouts, metrics) and never goes back.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, as records carry them."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; fractions count."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.perf_counter() * 1_000.0


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms + int(self._elapsed_ms)

    def monotonic_ms(self) -> float:
        return self._elapsed_ms

    def advance(self, ms: float) -> None:
        assert ms >= 0, "time does not go back"
        self._elapsed_ms += ms
