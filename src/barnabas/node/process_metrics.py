"""Health of the process and of its event loop, read when the metrics page is rendered.

The loop's lag is how late a timer fires: every request that arrives waits about as long. It is the largest of
the last one or two periods, so that a scrape sees a pause between two scrapes. The busy share is the CPU time
of the loop's thread without busy polling, over the same time. A share near 1 means that the broker needs
another one beside it.
"""

from __future__ import annotations

import gc
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barnabas.core.clock import Clock, process_cpu_s, thread_cpu_ms
from barnabas.core.reporting.metrics import Labels, Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.network.busy_poll import BusyPoll

TICK_MS: Final = 250.0
PERIOD_MS: Final = 15_000.0
_STATM: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = "/proc/self/fd"


class LoopHealth:
    """Samples the lag of the loop, and the share of time in which its thread computes."""

    def __init__(self, clock: Clock, busy_poll: BusyPoll) -> None:
        self._now_ms = clock.monotonic_ms
        self._busy_poll = busy_poll
        self._due_ms = 0.0
        self._began_ms = self._began_busy_ms = 0.0
        self._lag_ms = self._lag_before_ms = 0.0
        self._share = 0.0

    def start(self, scheduler: Scheduler) -> None:
        self._begin_period(self._now_ms())
        self._due_ms = self._began_ms + TICK_MS
        scheduler.every(TICK_MS, self.tick)

    def tick(self) -> None:
        now_ms = self._now_ms()
        self._lag_ms = max(self._lag_ms, now_ms - self._due_ms)
        self._due_ms = now_ms + TICK_MS
        if now_ms - self._began_ms >= PERIOD_MS:
            self._share = self._share_until(now_ms)
            self._lag_before_ms, self._lag_ms = self._lag_ms, 0.0
            self._begin_period(now_ms)

    @property
    def lag_ms(self) -> float:
        return max(self._lag_ms, self._lag_before_ms, self._now_ms() - self._due_ms, 0.0)

    @property
    def busy_share(self) -> float:
        """Of the present period if a tenth of it is over, else of the one before."""
        now_ms = self._now_ms()
        return self._share_until(now_ms) if now_ms - self._began_ms > PERIOD_MS / 10 else self._share

    def _begin_period(self, now_ms: float) -> None:
        self._began_ms, self._began_busy_ms = now_ms, self._busy_ms()

    def _busy_ms(self) -> float:
        return thread_cpu_ms() - self._busy_poll.looked_ms

    def _share_until(self, now_ms: float) -> float:
        share = (self._busy_ms() - self._began_busy_ms) / (now_ms - self._began_ms)
        return min(max(share, 0.0), 1.0)


def register_loop_metrics(metrics: Metrics, health: LoopHealth) -> None:
    metrics.gauge(
        "barnabas_loop_lag_ms",
        "Longest delay of the event loop in the last 15 to 30 seconds.",
        lambda: health.lag_ms,
    )
    metrics.gauge(
        "barnabas_loop_busy_share",
        "Share of time in which the event loop computes, 0 to 1.",
        lambda: health.busy_share,
    )


def register_process_metrics(metrics: Metrics) -> None:
    """Metrics of the process, under the names that Prometheus' clients use."""
    if _STATM.exists():
        page_bytes = resource.getpagesize()
        metrics.gauge(
            "process_resident_memory_bytes",
            "Resident memory.",
            lambda: int(_STATM.read_text().split()[1]) * page_bytes,
        )
        metrics.gauge("process_open_fds", "Open file descriptors.", lambda: len(os.listdir(_DESCRIPTORS)))  # noqa: PTH208
    metrics.gauge(
        "process_max_fds",
        "Limit of open file descriptors.",
        lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    metrics.gauge("process_threads", "Threads that Python knows.", threading.active_count)
    metrics.samples(
        "process_cpu_seconds_total", "CPU time, user and system.", (), lambda: iter([((), process_cpu_s())])
    )
    metrics.samples(
        "python_gc_collections_total", "Garbage collections, by generation.", ("generation",), _collections
    )


def _collections() -> Iterator[tuple[Labels, float]]:
    for generation, stats in enumerate(gc.get_stats()):
        yield (("generation", str(generation)),), stats["collections"]
