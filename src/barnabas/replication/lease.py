"""For how long this broker may believe that it still leads what it led.

A process that was stopped and continued, or whose coordination session expired behind its back,
goes on as if nothing had happened, while the controller has long elected others. The session
gives a lease: until it ends, no other broker can have been elected in our place. After that
nothing is acknowledged: neither new writes, nor those that waited, nor a coordinator's.
Reading goes on, for what was committed stays so.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.clock import Clock


class Lease:
    __slots__ = ("_expires_ms", "_now_ms")

    def __init__(self, clock: Clock, expires_ms: Callable[[], float]) -> None:
        self._now_ms = clock.monotonic_ms
        self._expires_ms = expires_ms

    @property
    def is_held(self) -> bool:
        return self._now_ms() < self._expires_ms()
