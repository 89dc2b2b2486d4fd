"""Pacing of Python work in a thread, so that the event loop keeps the interpreter, and of disk throughput.

The loop answers clients, and only one thread holds the interpreter. A busy thread keeps it for five
milliseconds each time the loop returns from a system call, and a request makes several of those. So the
thread sleeps after every short burst of work (`Pace`). The loop then waits rarely, and only for a fraction of
a burst.

Work also shares the disk: `Throttle` spreads reads and writes over time. Those pauses are long, so a timer of
the loop waits, not the thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock

BURST_MS = 0.1
"""Longest time that a thread keeps the interpreter, give or take a few records."""

REST_MS = 0.2
"""Sleep after a burst; timers add about 0.06."""

SLICE_MS = 50.0
"""Length of a slice of work, after which the loop checks whether the run should continue."""


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
        """Sleep for `REST_MS` at the end of a burst."""
        if self._now_ms() - self._burst_began_ms >= BURST_MS:
            self._sleep(REST_MS)
            self._burst_began_ms = self._now_ms()


class Throttle:
    """Limit of `log.cleaner.io.max.bytes.per.second` on average, over all runs."""

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self._config = config
        self._clock = clock
        self._free_at_ms = clock.monotonic_ms()

    def delay_ms_for(self, spent_bytes: int) -> float:
        """Count bytes read or written; returns the delay before the next."""
        now_ms = self._clock.monotonic_ms()
        cost_ms = spent_bytes * 1_000 / max(self._config.log_cleaner_io_max_bytes_per_second, 1.0)
        self._free_at_ms = max(self._free_at_ms, now_ms) + cost_ms
        return self._free_at_ms - now_ms
