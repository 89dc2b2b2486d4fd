"""Pace of updates: when the next update of a declarative pipeline starts, and when to look at the log ends.

- New records start an update, at the earliest `min_ms` after the start of the last one.
- Without new records, or where they cannot be seen (topics of another cluster, files), an update starts
  `max_ms` after the start of the last one.
- An update that leaves new records unread doubles the interval, up to `max_ms`.
- The first update starts at once.
- Looks at the log ends become rarer while they find nothing.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.backoff import Backoff

LOOKS: Final = Backoff(first_ms=1_000, max_ms=10_000)


class Pace:
    def __init__(self, min_ms: int, max_ms: int) -> None:
        self._intervals = Backoff(min_ms, max_ms)
        self._interval_ms: float = min_ms
        self._look_ms = LOOKS.first_ms
        self._started_ms: int | None = None

    def start(self, now_ms: int) -> None:
        self._started_ms = now_ms

    def end(self, *, is_stuck: bool) -> None:
        """Note the end of an update. It is stuck if it read nothing and records are still unread."""
        following_ms = self._intervals.following_ms(max(self._interval_ms, 1))
        self._interval_ms = following_ms if is_stuck else self._intervals.first_ms
        self._look_ms = LOOKS.first_ms

    def is_due(self, now_ms: int, unread: int | None) -> bool:
        """Whether an update starts now. `unread` is None where the number of new records is unknown."""
        if self._started_ms is None:
            return True
        since_ms = now_ms - self._started_ms
        return since_ms >= (self._interval_ms if unread else self._intervals.max_ms)

    def next_look_ms(self, now_ms: int, unread: int | None) -> float:
        """Pause until the next look, after one that started no update."""
        assert self._started_ms is not None
        since_ms = now_ms - self._started_ms
        if unread:
            return max(self._interval_ms - since_ms, 0)
        pause_ms, self._look_ms = self._look_ms, LOOKS.following_ms(self._look_ms)
        return max(min(pause_ms, self._intervals.max_ms - since_ms), 0)
