"""How a run takes no more than its share.

A run is Python code in a thread of a process whose loop answers clients, and only one of the
two can hold the interpreter. Left alone, a busy thread keeps it for five milliseconds each
time the loop comes back from a system call, and a request makes several of those. So the
thread lets go on its own: it works for a moment, then sleeps for one (`Pace`). The loop then
waits a fraction of a moment, seldom, and finds the interpreter free most of the time.

The disk is shared as well: `Throttle` spreads reads and writes over time. Those pauses are
long, and are spent on the loop's timer, not in the thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock

BURST_MS = 0.1
"""The longest that a run keeps the interpreter in one piece, give or take a few records."""

REST_MS = 0.2
"""What it then leaves to others; timers add some 0.06 to it."""

SLICE_MS = 50.0
"""How long a slice of work lasts before the loop looks whether the run should go on."""


def _sleep(ms: float) -> None:
    time.sleep(ms / 1_000)


class Pace:
    """Used by one thread at a time."""

    __slots__ = ("_burst_began_ms", "_now_ms", "_sleep", "_slice_began_ms")

    def __init__(self, clock: Clock, sleep: Callable[[float], None] = _sleep) -> None:
        self._now_ms = clock.monotonic_ms
        self._sleep = sleep
        self._burst_began_ms = self._slice_began_ms = clock.monotonic_ms()

    def begin_slice(self) -> None:
        self._burst_began_ms = self._slice_began_ms = self._now_ms()

    @property
    def is_slice_over(self) -> bool:
        return self._now_ms() - self._slice_began_ms >= SLICE_MS

    def breathe(self) -> None:
        """Sleep for a moment when the burst has lasted long enough."""
        if self._now_ms() - self._burst_began_ms >= BURST_MS:
            self._sleep(REST_MS)
            self._burst_began_ms = self._now_ms()


class Throttle:
    """At most `log.cleaner.io.max.bytes.per.second` on average, over all runs."""

    def __init__(self, clock: Clock, settings: BrokerConfig) -> None:
        self._settings = settings
        self._clock = clock
        self._free_at_ms = clock.monotonic_ms()

    def delay_ms_for(self, spent_bytes: int) -> float:
        """Account for bytes read or written; how long to wait before the next."""
        now_ms = self._clock.monotonic_ms()
        cost_ms = spent_bytes * 1_000 / max(self._settings.log_cleaner_io_max_bytes_per_second, 1.0)
        self._free_at_ms = max(self._free_at_ms, now_ms) + cost_ms
        return self._free_at_ms - now_ms
