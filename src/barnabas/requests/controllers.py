"""Requests that only the controller answers: a client that asks another broker gets NOT_CONTROLLER,
looks up who the controller is, and asks there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from barnabas.core.errors import NotController
from barnabas.requests.context import RequestContext

T = TypeVar("T")

PIECE = 500


def in_pieces(asked: Sequence[T]) -> Iterator[Sequence[T]]:
    """What one event of the controller takes: a request may name a hundred thousand partitions."""
    return (asked[start : start + PIECE] for start in range(0, max(1, len(asked)), PIECE))


def check_is_controller(context: RequestContext) -> None:
    if not context.broker.controller.is_active:
        raise NotController("this is not the controller of this cluster")


class Deadline:
    """What is left of a request's `timeout_ms`, which counts for all that it asks for."""

    def __init__(self, context: RequestContext, timeout_ms: float) -> None:
        self._clock = context.broker.clock
        self._deadline_ms = self._clock.monotonic_ms() + timeout_ms

    def left_ms(self) -> float:
        return max(0.0, self._deadline_ms - self._clock.monotonic_ms())
