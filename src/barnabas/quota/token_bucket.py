"""A bucket that fills at a rate and is emptied by changes to topics (KIP-599).

A change may be larger than what is in the bucket, as long as there is something: creating a topic of a
thousand partitions cannot be done by halves. What it lacks is waited for afterwards.
"""

from __future__ import annotations


class TokenBucket:
    """Tokens a second, up to what fills it in `burst_s`. Times are milliseconds on one monotonic clock."""

    __slots__ = ("_at_ms", "_burst_s", "_tokens", "rate")

    def __init__(self, rate: float, burst_s: float, now_ms: float) -> None:
        self.rate = rate
        self._burst_s = burst_s
        self._tokens = rate * burst_s
        self._at_ms = now_ms

    def take(self, amount: float, now_ms: float) -> None:
        """More than there is leaves a debt."""
        self._fill(now_ms)
        self._tokens -= amount

    def wait_ms(self, now_ms: float) -> float:
        """How long until the debt is paid; 0 without one."""
        self._fill(now_ms)
        return max(0.0, -self._tokens / self.rate * 1_000)

    def _fill(self, now_ms: float) -> None:
        gained = (now_ms - self._at_ms) * self.rate / 1_000
        self._tokens = min(self.rate * self._burst_s, self._tokens + gained)
        self._at_ms = now_ms
