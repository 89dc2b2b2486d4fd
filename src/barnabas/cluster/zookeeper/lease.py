"""Until when a session certainly lives.

Every third of the session timeout the server is asked something, and when the answer comes the session is
known to live until the timeout has passed *since the question was sent*. A question that stays unanswered
for two thirds of the timeout means that the server is silent; the connection is dropped, which leaves the
last third to find another server.

The gaps: in an ensemble a follower hands its clients' signs of life to the leader every half tick, and
one that dies takes those of the last half tick with it. And the clock stands still while the whole machine
sleeps.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from barnabas.core.clock import Clock

logger = logging.getLogger(__name__)

_SILENCE_MAX = 0.6
"""Of the session timeout; a little less than two heartbeats."""


class SessionLease:
    """`ask` sends a question and calls back on its answer; `drop` gives the connection up."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        ask: Callable[[Callable[[], None]], None],
        drop: Callable[[], None],
    ) -> None:
        self.expires_ms = -math.inf
        self._loop = loop
        self._now_ms = clock.monotonic_ms
        self._ask = ask
        self._drop = drop
        self._timeout_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered_ms: float | None = None
        """When the question was sent whose answer is awaited."""

    def begin(self, sent_ms: float, timeout_ms: int) -> None:
        """A connection stands; the handshake that was sent then is the first sign of life."""
        self.pause()
        self._timeout_ms = timeout_ms
        self.expires_ms = sent_ms + timeout_ms
        self._beat()

    def pause(self) -> None:
        """The connection is gone; the session runs out unless another is made."""
        self._unanswered_ms = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """The session is over."""
        self.pause()
        self.expires_ms = -math.inf

    def _beat(self) -> None:
        self._timer = self._loop.call_later(self._timeout_ms / 3_000, self._beat)
        now_ms = self._now_ms()
        if self._unanswered_ms is None:
            self._unanswered_ms = now_ms
            self._ask(lambda: self._extend(now_ms))
        elif now_ms - self._unanswered_ms >= self._timeout_ms * _SILENCE_MAX:
            logger.warning("ZooKeeper is silent; the connection is given up")
            self._drop()

    def _extend(self, sent_ms: float) -> None:
        self._unanswered_ms = None
        self.expires_ms = sent_ms + self._timeout_ms
