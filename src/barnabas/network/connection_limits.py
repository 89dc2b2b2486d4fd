"""Limits of connections, and the deadlines of one connection.

The limits are fixed; none of them is a config. A connection reports events to its deadlines, and the server's
sweep asks for the first one that has passed. There is no timer, because most deadlines move with every
request.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass, field
from math import inf
from typing import Final

from barnabas.core import limits
from barnabas.core.integers import INT_MAX
from barnabas.network.counters import Closed

NEVER: Final = -1.0


def connections_allowed() -> int:
    """Descriptors of the process that connections may take: logs must be able to open files with any number
    of clients."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if limit == resource.RLIM_INFINITY else max(limit // 2, 64)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections_max: int = field(default_factory=connections_allowed)
    requests_in_flight_max: int = limits.REQUESTS_IN_FLIGHT_MAX
    output_bytes_max: int = limits.OUTPUT_BUFFERED_BYTES_MAX
    output_stalled_ms_max: float = limits.OUTPUT_STALLED_MS_MAX
    unread_bytes_max: int = limits.OUTPUT_UNREAD_BYTES_MAX
    unread_patience_ms: float = limits.OUTPUT_PATIENCE_MS
    frame_arrival_ms_max: float = limits.FRAME_ARRIVAL_MS_MAX
    authentication_ms_max: float = limits.AUTHENTICATION_MS_MAX
    half_closed_ms_max: float = limits.HALF_CLOSED_MS_MAX


class ConnectionDeadlines:
    """Times since which one connection authenticates, closes, sends, receives a request or idles."""

    __slots__ = (
        "_authenticate_by_ms", "_limits", "active_ms", "blocked_since_ms", "draining_since_ms",
        "frame_since_ms", "unread_since_ms",
    )  # fmt: skip

    def __init__(self, connection_limits: ConnectionLimits, now_ms: float, *, authenticates: bool) -> None:
        self._limits = connection_limits
        self.active_ms = now_ms
        """Last time that bytes arrived or left."""
        self.frame_since_ms = NEVER
        """Arrival of the first bytes of an incomplete request."""
        self.blocked_since_ms = NEVER
        """Last time that the client took bytes of a response, while others wait."""
        self.unread_since_ms = NEVER
        """Last time that the client had read all of its responses, while others wait."""
        self.draining_since_ms = NEVER
        self._authenticate_by_ms = now_ms + connection_limits.authentication_ms_max if authenticates else inf

    @property
    def awaits_authentication(self) -> bool:
        return self._authenticate_by_ms != inf

    def authenticated(self) -> None:
        self._authenticate_by_ms = inf

    def overdue(
        self,
        now_ms: float,
        closing: Closed | None,
        *,
        is_blocked: bool,
        is_busy: bool,
        is_paused: bool,
        arrived_bytes: int,
        idle_ms_max: float,
    ) -> Closed | None:
        """Reason to close the connection now, if a deadline has passed.

        A busy connection has requests in progress. `arrived_bytes` are those of an incomplete request.
        """
        if now_ms > self._authenticate_by_ms:
            return Closed.UNAUTHENTICATED
        if closing is not None and closing is not Closed.SHUTDOWN:
            progress_ms = max(self.draining_since_ms, self.active_ms)
            return _late(now_ms, progress_ms, self._limits.half_closed_ms_max, closing)
        if is_blocked:
            return _late(
                now_ms, self.blocked_since_ms, self._limits.output_stalled_ms_max, Closed.STALLED_READER
            )
        if is_busy:
            return None
        # A throttled connection is not read, so a client that is gone is not noticed: it may be idle.
        if self.frame_since_ms != NEVER and not is_paused:
            granted_ms = arrived_bytes / limits.FRAME_ARRIVAL_BYTES_PER_MS_MIN
            limit_ms = self._limits.frame_arrival_ms_max + granted_ms
            return _late(now_ms, self.frame_since_ms, limit_ms, Closed.SLOW_REQUEST)
        return _late(now_ms, self.active_ms, idle_ms_max, Closed.IDLE)


def _late(now_ms: float, since_ms: float, limit_ms: float, reason: Closed) -> Closed | None:
    return reason if now_ms - since_ms > limit_ms else None
