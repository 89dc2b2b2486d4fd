"""Session lease: until when a session with ZooKeeper or a shared store certainly lives.

Every third of the session timeout a heartbeat goes to the server. Its response proves that the session lives
until the timeout has passed *since the heartbeat was sent*. If the response is missing for two thirds of the
timeout, the connection is dropped. The last third remains to connect again.

The gaps: a follower of a ZooKeeper ensemble forwards its clients' heartbeats to the leader every half tick. A
follower that dies loses those of the last half tick. And the clock stands still while the machine sleeps.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from barnabas.core.clock import Clock

logger = logging.getLogger(__name__)

_SILENCE_MAX = 0.6
"""Fraction of the session timeout; a little less than two heartbeats."""


class SessionLease:
    """Lease of one session. `ask` sends a heartbeat and calls back on its response; `drop` closes the
    connection.
    """

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
        """Send time of the heartbeat whose response is awaited."""

    def begin(self, sent_ms: float, timeout_ms: int) -> None:
        """Start the lease on a new connection; its handshake is the first heartbeat."""
        self.pause()
        self._timeout_ms = timeout_ms
        self.expires_ms = sent_ms + timeout_ms
        self._beat()

    def pause(self) -> None:
        """Stop the heartbeats of a lost connection; the session expires unless another one follows."""
        self._unanswered_ms = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """End the lease with its session."""
        self.pause()
        self.expires_ms = -math.inf

    def _beat(self) -> None:
        self._timer = self._loop.call_later(self._timeout_ms / 3_000, self._beat)
        now_ms = self._now_ms()
        if self._unanswered_ms is None:
            self._unanswered_ms = now_ms
            self._ask(lambda: self._extend(now_ms))
        elif now_ms - self._unanswered_ms >= self._timeout_ms * _SILENCE_MAX:
            logger.warning(
                "the coordination store does not answer heartbeats; the connection is closed and opened again"
            )
            self._drop()

    def _extend(self, sent_ms: float) -> None:
        self._unanswered_ms = None
        self.expires_ms = sent_ms + self._timeout_ms
