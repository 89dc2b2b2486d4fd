"""Clock: time is an argument.

Each decision of a broker uses the clock that it was given. So a test moves time by hand, and a simulation
runs an hour in a second. ruff bans the functions of `time` everywhere else.

Parts that decide nothing have a `SystemClock` of their own. They run on real time in the simulator too: the
rate limits of the log in `core.reporting.error_isolation`, `requests.errors` and `node.background_threads`,
and the watchdog in `node.stop_signals`. Commands, supervisors and pipeline drivers make theirs when they
start.

There are two kinds of time, never mixed. `now_ms` is the wall clock that goes into records and files, and may
jump. `monotonic_ms` only measures distances (timeouts, metrics), and never goes back.
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


def thread_cpu_ms() -> float:
    """CPU time of the calling thread."""
    return time.thread_time() * 1_000.0


def process_cpu_s() -> float:
    """CPU time of the process, user and system."""
    return time.process_time()


def since_wall_ms(seconds: int, nanoseconds: int) -> float:
    """Milliseconds since a moment that the kernel has stamped with its wall clock; fractions count."""
    return (time.time() - seconds) * 1_000.0 - nanoseconds / 1e6
