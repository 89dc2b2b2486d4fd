"""Whether a broker has been told something, for what others may be told only then."""

from __future__ import annotations

from collections.abc import Callable, Collection

from barnabas.core.sweeping import sweeping
from barnabas.core.waiting import Runner, Signal


class Delivery:
    """One request on its way. It is over when the broker has answered, or is gone and will not act on it."""

    __slots__ = ("_told", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._told: list[Callable[[], None]] = []

    def when_over(self, told: Callable[[], None]) -> None:
        if self.is_over:
            told()
        else:
            self._told.append(told)

    def end(self) -> None:
        self.is_over = True
        waiting, self._told = self._told, []
        for told in waiting:
            with sweeping("telling that a broker has answered"):
                told()


async def all_over(deliveries: Collection[Delivery], runner: Runner) -> None:
    """Wait until these are over."""
    over = Signal(runner)
    for delivery in deliveries:
        if not delivery.is_over:
            delivery.when_over(over.set)
            await over.wait()
