"""What a client does next, said to whoever does it.

A conversation with a cluster is a generator: it yields what is to be sent, or how long to wait, and is
given the answer, or thrown the error. So who is asked what, and when again, is written once;
`cluster_client` runs it under asyncio, and who has a thread of its own runs it with `run_blocking`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from barnabas.core.errors import KafkaError, error_for
from barnabas.protocol.schema import Message

T = TypeVar("T")
Response = TypeVar("Response", bound=Message)

ANY_BROKER: Final = -1


class ClusterUnreachable(Exception):
    """None of the bootstrap addresses leads to a broker."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))


class Send(NamedTuple):
    broker_id: int
    """Or ANY_BROKER."""
    request: Message
    response_class: type[Message]
    version_max: int | None = None
    timeout_ms: float | None = None
    """None waits as long as for any request."""


class Pause(NamedTuple):
    ms: float
    because: Exception
    left_ms: float
    """How long it will be tried again after this."""


Step: TypeAlias = Send | Pause
Steps: TypeAlias = Generator[Step, Any, T]


def ask(
    broker_id: int,
    request: Message,
    response_class: type[Response],
    version_max: int | None = None,
    timeout_ms: float | None = None,
) -> Steps[Response]:
    answer: Response = yield Send(broker_id, request, response_class, version_max, timeout_ms)
    return answer


def run_blocking(steps: Steps[T], do: Callable[[Step], Any]) -> T:
    """The outcome of `steps`, each done by `do`."""
    try:
        step = next(steps)
        while True:
            try:
                answer = do(step)
            except KafkaError as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        outcome: T = end.value
        return outcome


def raise_for(code: int, message: str | None, subject: str) -> None:
    """Raise what the error code of an answer stands for; `subject` says what it is about."""
    if code:
        raise error_for(code, message or subject)
