"""Rate over the last few windows of time, measured as in Kafka.

The amounts of the last `samples` windows are kept, and divided by the time that they cover. A sample that
overlaps that time is kept whole, with all the time since it began. Dropping it by its start would discard
amounts near its end too early, and the rate would jump. The time is never less than all windows but one. So a
rate without measurements counts as idle before, and a burst after a pause is allowed within one set of
windows.
"""

from __future__ import annotations

from collections import deque


class SampledRate:
    """Amounts per second. All times are milliseconds on one monotonic clock."""

    __slots__ = ("_samples", "_samples_max", "_window_ms", "total")

    def __init__(self, samples_max: int, window_ms: float) -> None:
        self._samples_max = samples_max
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()
        """[start of the window, recorded amount, time of the last record]"""
        self.total = 0.0

    def record(self, amount: float, now_ms: float) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, 0.0, now_ms])
        current = samples[-1]
        current[1] += amount
        current[2] = now_ms
        self.total += amount

    def value(self, now_ms: float) -> float:
        self._drop_old(now_ms)
        return self.total * 1_000 / self.covered_ms(now_ms) if self._samples else 0.0

    def covered_ms(self, now_ms: float) -> float:
        """The time that the samples cover."""
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0.0
        missing = self._samples_max - 1 - int(elapsed_ms // self._window_ms)
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1.0)

    def throttle_ms(self, limit: float, now_ms: float) -> float:
        """Pause until the rate falls to `limit`; 0 if it is not above."""
        over = self.value(now_ms) - limit
        return over / limit * self.covered_ms(now_ms) if over > 0 else 0.0

    def _drop_old(self, now_ms: float) -> None:
        samples, lifetime_ms = self._samples, self._samples_max * self._window_ms
        while samples and now_ms - samples[0][2] >= lifetime_ms:
            self.total -= samples.popleft()[1]
        if not samples:
            self.total = 0.0
