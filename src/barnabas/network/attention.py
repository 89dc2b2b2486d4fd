"""To look for the next request a little longer, before the loop goes to sleep.

A client that sends one request after the other sends the next some tens of microseconds after it has its
answer. A loop that went to sleep meanwhile has to be woken for it, on a core that sleeps by now as well, with
caches that others have used: that takes as long as all the rest. So where requests follow each other closely
the loop goes on looking for a moment, as a kernel does before it halts a core. Between two looks it polls its
sockets without waiting, so that whoever has something for it is served as ever.

Looking costs CPU, and is in vain if the next request comes later than that. Each time that happens, twice as
many requests have to follow each other before the loop looks again, and half as many each time it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from barnabas.core.clock import Clock

CLOSE_BY_MS: Final = 0.15
"""From the end of a turn to that of the next request, with the time that it may take to be woken."""
CLOSE_BY_MIN: Final = 8
"""So many turns have to follow another so closely, at first."""
CLOSE_BY_MAX: Final = 1_024
LOOKS_MAX: Final = 100
"""After each turn, should the clock stand still."""


class Attention:
    """Told of each turn in which requests were served; `patience_ms` is how long it looks."""

    __slots__ = (
        "_call_soon", "_close_by", "_close_by_wanted", "_ended_ms", "_is_looking", "_looks_left", "_now_ms",
        "_patience_ms",
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

    def served(self, began_ms: float) -> None:
        """A turn that began then is over, and has served requests."""
        if began_ms - self._ended_ms < CLOSE_BY_MS:
            self._close_by += 1
        else:
            self._close_by = 0
        self._ended_ms = self._now_ms()
        if self._is_looking:
            self._looks_left = LOOKS_MAX
            self._close_by_wanted = max(CLOSE_BY_MIN, self._close_by_wanted // 2)
        elif self._patience_ms and self._close_by >= self._close_by_wanted:
            self._looks_left = LOOKS_MAX
            self._is_looking = True
            self._call_soon(self._look)

    def _look(self) -> None:
        self._looks_left -= 1
        if self._looks_left and self._now_ms() - self._ended_ms < self._patience_ms:
            self._call_soon(self._look)
        else:
            self._is_looking = False
            self._close_by = 0
            self._close_by_wanted = min(CLOSE_BY_MAX, self._close_by_wanted * 2)
