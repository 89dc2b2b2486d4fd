"""Decision of a coordinator: decide, append, replay.

A function of the state decides each request. It returns a `Decision`: the response, the records that make it
true, and the responses to requests that waited for it. The runtime appends the records, replays them into the
state, and holds the response back until they are replicated. So memory always equals a replay of the log, and
a failed append has changed nothing. A decision is a value. Work that a shard does after replication waits for
that as requests do, as a `Waiter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from barnabas.core.errors import KafkaError

R = TypeVar("R")
T = TypeVar("T")


class CoordinatorRecord(Protocol):
    """One fact as written: a key for compaction and a value; without a value, a tombstone."""

    def encode(self) -> tuple[bytes, bytes | None]: ...


class Waiter(Generic[R]):
    """Request whose response comes later. It is answered once: a removed member may be refused a second
    time."""

    __slots__ = ("_refuse", "_respond")

    def __init__(self, respond: Callable[[R], None], refuse: Callable[[KafkaError], None]) -> None:
        self._respond: Callable[[R], None] | None = respond
        self._refuse = refuse

    @property
    def is_open(self) -> bool:
        """Whether it has not been answered yet."""
        return self._respond is not None

    def respond(self, response: R) -> None:
        respond, self._respond = self._respond, None
        if respond is not None:
            respond(response)

    def refuse(self, error: KafkaError) -> None:
        if self._respond is not None:
            self._respond = None
            self._refuse(error)


Answers = Sequence[tuple[Waiter[Any], Any]]
"""Waiting requests with their responses."""

NO_ANSWERS: Answers = ()


def deliver(answers: Answers) -> None:
    for waiter, response in answers:
        waiter.respond(response)


class Decision(Generic[R]):
    """`response` is None when the request waits: a member's JoinGroup during a rebalance."""

    __slots__ = ("answers", "is_atomic", "later_answers", "records", "response", "room_bytes")

    def __init__(
        self,
        response: R | None = None,
        records: Sequence[CoordinatorRecord] = (),
        *,
        answers: Answers = NO_ANSWERS,
        later_answers: Answers = NO_ANSWERS,
        is_atomic: bool = True,
        room_bytes: int = 0,
    ) -> None:
        self.response = response
        self.records = records
        self.answers = answers
        """Responses to waiting requests that no record has to make true; they leave at once."""
        self.later_answers = later_answers
        """Responses that hold once the records are replicated. They leave then, just before the response. The
        requests are refused if the append fails or replication times out."""
        self.is_atomic = is_atomic
        """True if the records make sense only together: they are one batch, and too many of them are refused.
        False if each stands for itself, as tombstones of offsets do. They are divided into as many batches as
        needed; if one fails, those before it have counted."""
        self.room_bytes = room_bytes
        """Bytes by which the batch must stay below the log's limit. A later record about the same thing,
        which cannot be refused then, is larger by that."""

    def also(self, answers: Answers) -> Decision[R]:
        """The same decision; these requests are answered first."""
        return self.answered(self.response, answers) if answers else self

    def answered(self, response: T | None, answers: Answers = NO_ANSWERS) -> Decision[T]:
        """The same decision with the response to another request."""
        return Decision(
            response,
            self.records,
            answers=[*answers, *self.answers],
            later_answers=self.later_answers,
            is_atomic=self.is_atomic,
            room_bytes=self.room_bytes,
        )


NOTHING: Decision[None] = Decision()
