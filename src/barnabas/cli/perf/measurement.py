"""Measurement of one run: records, bytes and latencies by time, and progress lines while it lasts.

On a terminal one line is renewed each second. Elsewhere a line is printed every few seconds, so that no
command is silent at a broker that hangs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from barnabas.cli.perf.latencies import Latencies
from barnabas.cli.support.progress import NOTICE_AFTER_S
from barnabas.core.clock import Clock, SystemClock, process_cpu_s

SECONDS_KEPT_MAX = 3_600
"""A longer run has no rate for its later seconds in the plot."""


class Measurement:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.records = 0
        self.bytes = 0
        self.latencies = Latencies()
        self.rates: list[float] = []
        """Records a second, for each second."""
        self._begin_ms = self._end_ms = self._clock.monotonic_ms()
        self._begin_cpu_s = process_cpu_s()
        self._cpu_s = 0.0

    def now_ms(self) -> float:
        return self._clock.monotonic_ms()

    def begin(self) -> None:
        """Begin the measured time: what came before is preparation."""
        self._begin_ms, self._begin_cpu_s = self.now_ms(), process_cpu_s()

    def end(self) -> None:
        self._end_ms, self._cpu_s = self.now_ms(), process_cpu_s() - self._begin_cpu_s

    def summary(self) -> dict[str, Any]:
        seconds = max(self._end_ms - self._begin_ms, 0.001) / 1_000
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(seconds, 3),
            "records_per_second": round(self.records / seconds, 1),
            "megabytes_per_second": round(self.bytes / seconds / 1e6, 3),
            "cpu_us_per_record": round(self._cpu_s * 1e6 / self.records, 2) if self.records else 0.0,
            "latency_ms": self.latencies.summary(),
        }

    @asynccontextmanager
    async def running(self, *, quiet: bool) -> AsyncIterator[None]:
        """Measure the block, with progress lines."""
        lines = asyncio.get_running_loop().create_task(self._progress(quiet=quiet))
        self.begin()
        try:
            yield
        finally:
            self.end()
            lines.cancel()
            if not quiet and sys.stderr.isatty():
                sys.stderr.write("\r\x1b[K")

    async def _progress(self, *, quiet: bool) -> None:
        is_terminal = sys.stderr.isatty()
        second, records, at_ms, printed_ms, printed_records = 0, 0, self.now_ms(), self.now_ms(), 0
        while True:
            await asyncio.sleep(1)
            now_ms = self.now_ms()
            rate = (self.records - records) * 1_000 / (now_ms - at_ms)
            if second < SECONDS_KEPT_MAX:
                self.rates.append(rate)
            second, records, at_ms = second + 1, self.records, now_ms
            if quiet:
                continue
            if is_terminal:
                sys.stderr.write(f"\r\x1b[K{self._line(rate)}")
                sys.stderr.flush()
            elif now_ms - printed_ms >= NOTICE_AFTER_S * 1_000:
                rate = (self.records - printed_records) * 1_000 / (now_ms - printed_ms)
                print(self._line(rate), file=sys.stderr, flush=True)
                printed_ms, printed_records = now_ms, self.records

    def _line(self, rate: float) -> str:
        latency = f"  latency {self.latencies.mean_ms:.2f} ms mean" if self.latencies.count else ""
        megabytes = rate * self.bytes / self.records / 1e6 if self.records else 0.0
        return f"{self.records:,} records  {rate:,.0f}/s  {megabytes:.2f} MB/s{latency}"
