"""Rates of counters, by comparing them with what they were a few seconds ago.

A counter costs nothing between questions. A rate needs two looks at least half a second apart, so the first
answer has none. A look that is a minute old says nothing about now, and counts as the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.core.clock import Clock

SPACING_MS: Final = 2_000.0
"""Looks are kept this far apart."""
YOUNGEST_MS: Final = 500.0
OLDEST_MS: Final = 60_000.0
KEYS_MAX: Final = 50_000
"""Past this number, keys that are no longer asked for are dropped, or all of them."""

Look = tuple[float, tuple[float, ...]]


class Rates:
    def __init__(self, clock: Clock) -> None:
        self._now_ms = clock.monotonic_ms
        self._looks: dict[str, tuple[Look, Look]] = {}
        """The last two looks at each set of counters."""

    def per_second(self, key: str, values: Sequence[float]) -> list[float] | None:
        """Rates of the counters under `key`, which have these values now; None at the first look."""
        now = self._now_ms(), tuple(values)
        older, newer = self._looks.get(key, (now, now))
        if now[0] - newer[0] > OLDEST_MS or any(
            value < before for value, before in zip(now[1], newer[1], strict=True)
        ):
            older = newer = now  # the topic was deleted and created again, or no tool asked for long
        if now[0] - newer[0] >= SPACING_MS or key not in self._looks or newer is now:
            self._keep(key, newer, now)
        base = newer if now[0] - newer[0] >= SPACING_MS else older
        passed_ms = now[0] - base[0]
        if passed_ms < YOUNGEST_MS:
            return None
        return [
            max(value - before, 0.0) * 1_000 / passed_ms
            for value, before in zip(now[1], base[1], strict=True)
        ]

    def _keep(self, key: str, older: Look, newer: Look) -> None:
        if len(self._looks) >= KEYS_MAX and key not in self._looks:
            least_ms = self._now_ms() - OLDEST_MS
            self._looks = {key: looks for key, looks in self._looks.items() if looks[1][0] > least_ms}
            if len(self._looks) >= KEYS_MAX:
                self._looks.clear()
        self._looks[key] = older, newer
