"""Requests that only the controller answers.

Another broker answers NOT_CONTROLLER; the client then looks up the controller and sends the request there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from barnabas.core.errors import NotController, ThrottlingQuotaExceeded
from barnabas.requests.context import RequestContext

T = TypeVar("T")

PIECE = 500


def in_pieces(asked: Sequence[T]) -> Iterator[Sequence[T]]:
    """Pieces for one controller event each: a request may name a hundred thousand partitions."""
    return (asked[start : start + PIECE] for start in range(0, max(1, len(asked)), PIECE))


def check_is_controller(context: RequestContext) -> None:
    if not context.broker.controller.is_active:
        raise NotController("this is not the controller of this cluster")


def charge_mutations(context: RequestContext, count: int, *, strict_since: int) -> None:
    """Charge the client's mutation quota for `count` partitions.

    From version `strict_since` on a client above its quota gets THROTTLING_QUOTA_EXCEEDED. Earlier versions
    do not know that error and are only throttled.
    """
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
    """Time left of a request's `timeout_ms`, which covers all its steps."""

    def __init__(self, context: RequestContext, timeout_ms: float) -> None:
        self._clock = context.broker.clock
        self._deadline_ms = self._clock.monotonic_ms() + timeout_ms

    def left_ms(self) -> float:
        return max(0.0, self._deadline_ms - self._clock.monotonic_ms())
