"""Leadership lease: the time and the partitions for which this broker certainly still leads.

A process may be stopped and continued, or lose its coordination session unnoticed. It goes on as before,
while the controller has long elected other leaders. The session gives a lease: until it ends, no other broker
can have been elected. After that nothing is acknowledged: no new writes, no waiting ones, no coordinator's.
No response claims to be current. Reading goes on, since committed records stay committed.

A new session brings the lease back, but not the old leaderships: other leaders may have been elected between
the two. So the lease covers a leadership only after LeaderAndIsr names it with the broker epoch that this
session registered.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.clock import Clock


class LeadershipLease:
    __slots__ = ("_expires_ms", "_now_ms", "_registered_epoch")

    def __init__(
        self, clock: Clock, expires_ms: Callable[[], float], registered_epoch: Callable[[], int | None]
    ) -> None:
        """`registered_epoch` is the broker epoch of the current session, None while there is none."""
        self._now_ms = clock.monotonic_ms
        self._expires_ms = expires_ms
        self._registered_epoch = registered_epoch

    @property
    def epoch(self) -> int | None:
        return self._registered_epoch()

    def covers(self, confirmed_epoch: int | None) -> bool:
        """Whether a leadership confirmed for this broker epoch is certainly still valid."""
        return (
            confirmed_epoch is not None
            and confirmed_epoch == self._registered_epoch()
            and self._now_ms() < self._expires_ms()
        )
