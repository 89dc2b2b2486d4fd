"""For how long, and for what, this broker may believe that it still leads what it led.

A process that was stopped and continued, or whose coordination session expired behind its back,
goes on as if nothing had happened, while the controller has long elected others. The session
gives a lease: until it ends, no other broker can have been elected in our place. After that
nothing is acknowledged: neither new writes, nor those that waited, nor a coordinator's, and nothing
is told that claims to be current. Reading goes on, for what was committed stays so.

A new session brings the lease back, but not what was led under the old one: between the two anybody may
have been elected. So the lease covers a leadership only if the controller has named it in an order that
carries the broker epoch which this session registered.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.clock import Clock


class LeadershipLease:
    __slots__ = ("_expires_ms", "_now_ms", "_registered_epoch")

    def __init__(
        self, clock: Clock, expires_ms: Callable[[], float], registered_epoch: Callable[[], int | None]
    ) -> None:
        """`registered_epoch` is the broker's in the present session, None while it has none in it."""
        self._now_ms = clock.monotonic_ms
        self._expires_ms = expires_ms
        self._registered_epoch = registered_epoch

    @property
    def epoch(self) -> int | None:
        return self._registered_epoch()

    def covers(self, confirmed_epoch: int | None) -> bool:
        """Whether a leadership that the controller gave to this broker epoch is certainly still ours."""
        return (
            confirmed_epoch is not None
            and confirmed_epoch == self._registered_epoch()
            and self._now_ms() < self._expires_ms()
        )
