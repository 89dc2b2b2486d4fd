"""Delivery of a controller request, for requests that must wait for it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.waiting import Signal


class Delivery:
    """One request on its way. It is over when the broker has answered, or is gone and will not act on it."""

    __slots__ = ("_callbacks", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._callbacks: list[Callable[[], None]] = []

    def when_over(self, callback: Callable[[], None]) -> None:
        if self.is_over:
            callback()
        else:
            self._callbacks.append(callback)

    def end(self) -> None:
        self.is_over = True
        waiting, self._callbacks = self._callbacks, []
        for callback in waiting:
            with sweeping("continuing after the response of a broker"):
                callback()


async def all_over(deliveries: Collection[Delivery]) -> None:
    """Wait until all of these are over."""
    over = Signal()
    for delivery in deliveries:
        if not delivery.is_over:
            delivery.when_over(over.set)
            await over.wait()
