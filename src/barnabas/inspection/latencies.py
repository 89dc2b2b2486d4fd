"""Quantiles of request times over the last minute, from the histograms of the metrics page."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.core.clock import Clock
from barnabas.core.reporting.metrics import Histogram, Metrics

TOTAL_TIME: Final = "kafka_request_total_time_ms"
WINDOW_MS: Final = 60_000.0
SPACING_MS: Final = 10_000.0


class _Look(NamedTuple):
    at_ms: float
    counts: dict[str, list[int]]


class Latencies:
    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._now_ms = clock.monotonic_ms
        self._looks: deque[_Look] = deque()

    def answer(self) -> list[dict[str, object]]:
        """Count, median and 99th percentile of each API that had requests in the window."""
        now_ms = self._now_ms()
        histograms = self._histograms()
        while len(self._looks) > 1 and now_ms - self._looks[1].at_ms > WINDOW_MS:
            self._looks.popleft()
        if not self._looks or now_ms - self._looks[-1].at_ms >= SPACING_MS:
            self._looks.append(_Look(now_ms, {api: list(each.counts) for api, each in histograms.items()}))
        before = self._looks[0].counts if now_ms - self._looks[0].at_ms <= 2 * WINDOW_MS else {}
        rows: list[dict[str, object]] = []
        for api, histogram in sorted(histograms.items()):
            earlier = before.get(api, [0] * len(histogram.counts)) if len(self._looks) > 1 else []
            counts = [a - b for a, b in zip(histogram.counts, earlier, strict=False)] or histogram.counts
            total = sum(counts)
            if total:
                p50, p99 = (quantile(histogram.bounds, counts, share) for share in (0.5, 0.99))
                rows.append({"api": api, "count": total, "p50_ms": p50, "p99_ms": p99})
        return rows

    def _histograms(self) -> dict[str, Histogram]:
        family = next((each for each in self._metrics.families() if each.name == TOTAL_TIME), None)
        members = {} if family is None else family.members
        return {
            dict(labels)["api"]: member for labels, member in members.items() if isinstance(member, Histogram)
        }


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Value below which this share of the observations lies, straight between two bounds."""
    wanted = share * sum(counts)
    below, lower = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return lower
