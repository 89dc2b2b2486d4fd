"""Busy polling: the loop looks for the next request a little longer before it sleeps.

A client that sends one request after the other sends the next some tens of microseconds after its response. A
loop that sleeps by then has to be woken, on a core that may sleep as well, with cold caches. That takes as
long as all the rest. So where requests follow each other closely the loop keeps looking for a moment, as a
kernel does before it halts a core. Between two looks it polls its sockets without waiting, so that other
clients are served as usual.

Looking costs CPU, and is wasted if the next request comes later. After each miss, twice as many requests have
to follow each other before the loop looks again; after each hit, half as many.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from barnabas.core.clock import Clock

CLOSE_BY_MS: Final = 0.15
"""From the end of a turn to that of the next request, including the time to be woken."""
CLOSE_BY_MIN: Final = 8
"""Turns that have to follow each other this closely, at first."""
CLOSE_BY_MAX: Final = 1_024
LOOKS_MAX: Final = 100
"""Limit after each turn, in case the clock stands still."""


class BusyPoll:
    """Decides after each turn with requests whether to look again; `patience_ms` is how long it looks."""

    __slots__ = (
        "_busy_since_ms",
        "_call_soon",
        "_close_by",
        "_close_by_wanted",
        "_ended_ms",
        "_is_looking",
        "_looks_left",
        "_now_ms",
        "_patience_ms",
        "looked_ms",
    )  # fmt: skip

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Clock, patience_ms: float
    ) -> None:
        self._call_soon = call_soon
        self._now_ms = clock.monotonic_ms
        self._patience_ms = patience_ms
        self._ended_ms = -inf
        self._close_by = 0
        self._close_by_wanted = CLOSE_BY_MIN
        self._is_looking = False
        self._looks_left = 0
        self._busy_since_ms = -inf
        """Begin of the first of the turns that have followed each other closely."""
        self.looked_ms = 0.0
        """Time in which the loop was idle and looked instead of sleeping."""

    def served(self, began_ms: float) -> None:
        """End of a turn that began at `began_ms` and served requests."""
        if began_ms - self._ended_ms < CLOSE_BY_MS:
            self._close_by += 1
        else:
            self._close_by = 0
            self._busy_since_ms = began_ms
        ended_ms, self._ended_ms = self._ended_ms, self._now_ms()
        if self._is_looking:
            self.looked_ms += began_ms - ended_ms
            self._looks_left = LOOKS_MAX
            self._close_by_wanted = max(CLOSE_BY_MIN, self._close_by_wanted // 2)
        elif self._patience_ms and self._close_by >= self._close_by_wanted:
            self._looks_left = LOOKS_MAX
            self._is_looking = True
            self._call_soon(self._look)

    def busy_ms(self, now_ms: float) -> float:
        """Time for which turns have followed each other closely until now; 0 after a pause."""
        return now_ms - self._busy_since_ms if now_ms - self._ended_ms < CLOSE_BY_MS else 0.0

    def _look(self) -> None:
        self._looks_left -= 1
        idle_ms = self._now_ms() - self._ended_ms
        if self._looks_left and idle_ms < self._patience_ms:
            self._call_soon(self._look)
        else:
            self.looked_ms += idle_ms
            self._is_looking = False
            self._close_by = 0
            self._close_by_wanted = min(CLOSE_BY_MAX, self._close_by_wanted * 2)
