"""Decide, append, replay: what a decision is.

A request to a coordinator is decided by a function of the state, which returns a `Decision`: the response,
the records that make it true, and what requests that waited for it hear. The runtime appends the records,
then replays them into the state, then holds the response back until they are replicated. So what memory says
is what a replay of the log says, and an append that fails has changed nothing. A decision is a value: what a
shard does once its records are replicated waits for that as requests do, as a `Waiter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from barnabas.core.errors import KafkaError

R = TypeVar("R")
T = TypeVar("T")


class CoordinatorRecord(Protocol):
    """One fact, as it is written: a key that compaction goes by and a value; no value is a tombstone."""

    def encode(self) -> tuple[bytes, bytes | None]: ...


class Waiter(Generic[R]):
    """A request whose answer comes later. It is answered once: a member that was let go may be refused a
    second time."""

    __slots__ = ("_refuse", "_respond")

    def __init__(self, respond: Callable[[R], None], refuse: Callable[[KafkaError], None]) -> None:
        self._respond: Callable[[R], None] | None = respond
        self._refuse = refuse

    @property
    def is_open(self) -> bool:
        """It is still to be answered."""
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
"""Requests that waited, and what each of them hears."""

NO_ANSWERS: Answers = ()


def deliver(answers: Answers) -> None:
    for waiter, response in answers:
        waiter.respond(response)


class Decision(Generic[R]):
    """`response` is None when somebody else answers, later: a member that waits for a rebalance."""

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
        """To requests that waited for this. They say nothing that a record has to make true, so they leave at
        once."""
        self.later_answers = later_answers
        """These are true once the records are replicated, and leave then, just before the response. Whoever
        waits is refused if the records could not be appended, or were not replicated in time."""
        self.is_atomic = is_atomic
        """True if the records make sense only together: they are one batch, and too many of them are
        refused. False if each stands for itself, as tombstones of offsets do: they are divided into as many
        batches as it takes, and should one of these fail, those before it have counted."""
        self.room_bytes = room_bytes
        """By how much the batch has to stay below what the log takes: what must be written later about the
        same thing, and cannot be refused then, is larger by that."""

    def also(self, answers: Answers) -> Decision[R]:
        """The same, and these requests are answered first."""
        return self.answered(self.response, answers) if answers else self

    def answered(self, response: T | None, answers: Answers = NO_ANSWERS) -> Decision[T]:
        """The same, with the answer to another request."""
        return Decision(
            response,
            self.records,
            answers=[*answers, *self.answers],
            later_answers=self.later_answers,
            is_atomic=self.is_atomic,
            room_bytes=self.room_bytes,
        )


NOTHING: Decision[None] = Decision()
