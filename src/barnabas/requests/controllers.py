"""Requests that only the controller answers: a client that asks another broker gets NOT_CONTROLLER,
looks up who the controller is, and asks there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from barnabas.core.errors import NotController, ThrottlingQuotaExceeded
from barnabas.requests.context import RequestContext

T = TypeVar("T")

PIECE = 500


def in_pieces(asked: Sequence[T]) -> Iterator[Sequence[T]]:
    """What one event of the controller takes: a request may name a hundred thousand partitions."""
    return (asked[start : start + PIECE] for start in range(0, max(1, len(asked)), PIECE))


def check_is_controller(context: RequestContext) -> None:
    if not context.broker.controller.is_active:
        raise NotController("this is not the controller of this cluster")


def charge_mutations(context: RequestContext, count: int, *, strict_since: int) -> None:
    """Charge the client for a change to so many partitions. From version `strict_since` on one that has used
    up its quota is refused (THROTTLING_QUOTA_EXCEEDED); before it the client would not know what that is."""
    quotas = context.broker.quotas
    if not quotas.is_limiting:
        return
    user = context.exchange.connection.principal.name
    is_strict = context.api_version >= strict_since
    try:
        throttle_ms = quotas.charge_mutations(user, context.client_id, count, is_strict=is_strict)
    except ThrottlingQuotaExceeded:
        context.throttle_ms = quotas.mutation_wait_ms(user, context.client_id)
        raise
    context.throttle_ms = max(context.throttle_ms, throttle_ms)


class Deadline:
    """What is left of a request's `timeout_ms`, which counts for all that it asks for."""

    def __init__(self, context: RequestContext, timeout_ms: float) -> None:
        self._clock = context.broker.clock
        self._deadline_ms = self._clock.monotonic_ms() + timeout_ms

    def left_ms(self) -> float:
        return max(0.0, self._deadline_ms - self._clock.monotonic_ms())
