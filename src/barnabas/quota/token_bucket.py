"""Token bucket for mutations of topics (KIP-599).

A mutation may take more tokens than the bucket holds, as long as it holds some. A topic of a thousand
partitions cannot be created in parts. The client waits afterwards until the debt is paid.
"""

from __future__ import annotations


class TokenBucket:
    """Tokens per second, up to `burst_s` of them. Times are milliseconds on one monotonic clock."""

    __slots__ = ("_at_ms", "_burst_s", "_tokens", "rate")

    def __init__(self, rate: float, burst_s: float, now_ms: float) -> None:
        self.rate = rate
        self._burst_s = burst_s
        self._tokens = rate * burst_s
        self._at_ms = now_ms

    def take(self, amount: float, now_ms: float) -> None:
        """Take tokens; more than the bucket holds leaves a debt."""
        self._fill(now_ms)
        self._tokens -= amount

    def wait_ms(self, now_ms: float) -> float:
        """Time until the debt is paid; 0 without one."""
        self._fill(now_ms)
        return max(0.0, -self._tokens / self.rate * 1_000)

    def _fill(self, now_ms: float) -> None:
        gained = (now_ms - self._at_ms) * self.rate / 1_000
        self._tokens = min(self.rate * self._burst_s, self._tokens + gained)
        self._at_ms = now_ms
