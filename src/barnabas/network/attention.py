"""To look for the next request a little longer, before the loop goes to sleep.

A client that sends one request after the other sends the next some tens of microseconds after it has its
answer. A loop that went to sleep meanwhile has to be woken for it, on a core that sleeps by now as well, with
caches that others have used: that takes as long as all the rest. So where requests follow each other closely
the loop goes on looking for a moment, as a kernel does before it halts a core. Whoever else has something for
the loop is served meanwhile as ever: each look is a turn of its own.

The time is bounded, and so is the number of looks. A broker whose requests come now and then does not look.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from barnabas.core.clock import Clock

CLOSE_BY_MS: Final = 0.15
"""From the end of a turn to the next request, with the time that it may take to be woken."""
CLOSE_BY_MIN: Final = 8
"""So many turns in a row have to follow each other closely."""
LOOKS_MAX: Final = 100


class Attention:
    """`begin` and `end` a turn that serves requests; between turns it looks for `patience_ms`."""

    __slots__ = (
        "_call_soon",
        "_close_by",
        "_ended_ms",
        "_is_looking",
        "_looks_left",
        "_now_ms",
        "_patience_ms",
    )

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Clock, patience_ms: float
    ) -> None:
        self._call_soon = call_soon
        self._now_ms = clock.monotonic_ms
        self._patience_ms = patience_ms
        self._ended_ms = -inf
        self._close_by = 0
        self._is_looking = False
        self._looks_left = 0

    def begin(self, now_ms: float) -> None:
        if now_ms - self._ended_ms < CLOSE_BY_MS:
            self._close_by += 1
        else:
            self._close_by = 0

    def end(self) -> None:
        self._ended_ms = self._now_ms()
        if self._close_by < CLOSE_BY_MIN or not self._patience_ms:
            return
        self._looks_left = LOOKS_MAX
        if not self._is_looking:
            self._is_looking = True
            self._call_soon(self._look)

    def _look(self) -> None:
        self._looks_left -= 1
        if self._looks_left and self._now_ms() - self._ended_ms < self._patience_ms:
            self._call_soon(self._look)  # the loop looks at its sockets before it gets here again
        else:
            self._is_looking = False
