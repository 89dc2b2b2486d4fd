"""Latencies in bounded memory: counts by bucket, whose bounds grow by two per cent.

A percentile is the upper bound of its bucket, so it is at most two per cent too high.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

GROWTH: Final = 1.02
_LOG_GROWTH: Final = math.log(GROWTH)
LEAST_MS: Final = 0.001
PERCENTILES: Final[Sequence[float]] = (50, 75, 90, 95, 99, 99.9)


class Latencies:
    def __init__(self) -> None:
        self.count = 0
        self.max_ms = 0.0
        self._total_ms = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, latency_ms: float) -> None:
        self.count += 1
        self._total_ms += latency_ms
        self.max_ms = max(self.max_ms, latency_ms)
        bucket = math.ceil(math.log(max(latency_ms, LEAST_MS) / LEAST_MS) / _LOG_GROWTH)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    @property
    def mean_ms(self) -> float:
        return self._total_ms / self.count if self.count else 0.0

    def percentile_ms(self, percentile: float) -> float:
        """Latency that this share of the samples does not exceed; 0 without any."""
        wanted = self.count * percentile / 100
        seen = 0
        for bucket, count in sorted(self._buckets.items()):
            seen += count
            if seen >= wanted:
                return min(LEAST_MS * GROWTH**bucket, self.max_ms)
        return self.max_ms

    def summary(self) -> dict[str, float]:
        """Mean, percentiles and maximum, in milliseconds."""
        named = {f"p{percentile:g}": self.percentile_ms(percentile) for percentile in PERCENTILES}
        found = {"mean": self.mean_ms, **named, "max": self.max_ms}
        return {name: round(value, 4) for name, value in found.items()}
