"""Conversations with a cluster as generators, without I/O.

A conversation yields a request to send or a pause to wait (`core.steps`). So destinations and retries are
written once: `cluster_client` drives them under asyncio, and the Spark connector in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from barnabas.core import steps
from barnabas.core.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    error_for,
)
from barnabas.protocol.schema.message import Message

T = TypeVar("T")
Response = TypeVar("Response", bound=Message)

ANY_BROKER: Final = -1


class ClusterUnreachable(Exception):
    """No bootstrap address leads to a broker."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))


class Send(NamedTuple):
    broker_id: int
    """Broker id or ANY_BROKER."""
    request: Message
    response_class: type[Message]
    version_max: int | None = None
    timeout_ms: float | None = None
    """None means the connection's request timeout."""


class Pause(NamedTuple):
    ms: float
    because: Exception
    left_ms: float
    """Time left for retries after this pause."""


Step: TypeAlias = Send | Pause
Steps: TypeAlias = steps.Steps[Step, T]


def ask(
    broker_id: int,
    request: Message,
    response_class: type[Response],
    version_max: int | None = None,
    timeout_ms: float | None = None,
) -> Steps[Response]:
    answer: Response = yield Send(broker_id, request, response_class, version_max, timeout_ms)
    return answer


_UNAUTHORIZED = frozenset(
    each.code
    for each in (
        ClusterAuthorizationFailed,
        GroupAuthorizationFailed,
        TopicAuthorizationFailed,
        TransactionalIdAuthorizationFailed,
    )
)


def raise_for(code: int, message: str | None, subject: str, *, needs: str | None = None) -> None:
    """Raise the error for a code of an answer. `subject` is its message where the broker sends none, and
    `needs` the right that the request needs, such as "READ on TOPIC orders".
    """
    if code:
        raise refusal(code, message, subject, needs=needs)


def refusal(code: int, message: str | None, subject: str, *, needs: str | None = None) -> KafkaError:
    """The error that `raise_for` raises."""
    if not message and needs and code in _UNAUTHORIZED:
        message = f"not authorized: {needs}"
    return error_for(code, message or subject)
