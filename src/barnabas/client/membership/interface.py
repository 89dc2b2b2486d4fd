"""Interface of both membership machines: asks out, answers in, events for the owner.

The owner of a machine sends each `Ask` to the group's coordinator, and handles events one by one:

    while (event := member.event) is not None:
        ...                       # commit, call the rebalance listener
        member.event_done()       # only now the partitions are given up, or taken

A `Revoked` event comes before the partitions are given up, so that their offsets can still be committed. A
`Lost` event comes too late for that: another member may own them.

Time comes from the injected clock. `wakes_ms` is the moment at which `next_ask` may have more to send.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from barnabas.client.core.retries import BACKOFF, spread
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.ids import Randomness, TopicPartition
from barnabas.protocol.schema.message import Message

Partitions: TypeAlias = frozenset[TopicPartition]

NOTHING: Final[Partitions] = frozenset()


class Assigned(NamedTuple):
    """The member owns these partitions too, from now on."""

    partitions: Partitions


class Revoked(NamedTuple):
    """The member gives these partitions up. None of them: the group rebalances, and offsets are committed."""

    partitions: Partitions


class Lost(NamedTuple):
    """The member no longer owns these partitions; its commits for them are refused."""

    partitions: Partitions


class Failed(NamedTuple):
    """The coordinator refuses this member for good."""

    error: Exception


Event: TypeAlias = Assigned | Revoked | Lost | Failed


class Ask(NamedTuple):
    """Request for the coordinator. Exactly one of `answered` and `failed` follows."""

    request: Message
    response_class: type[Message]
    timeout_ms: float | None = None
    """None means the connection's request timeout."""


@dataclass(frozen=True, slots=True)
class GroupOptions:
    group_id: str
    instance_id: str | None = None
    session_timeout_ms: float = 45_000
    heartbeat_interval_ms: float = 3_000
    max_poll_interval_ms: float = 300_000
    rack: str | None = None
    remote_assignor: str | None = None
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    backoff: Backoff = BACKOFF


class Membership(Protocol):
    owned: Partitions
    member_id: str
    epoch: int
    """Member epoch or generation; -1 outside of the group."""
    wants_topics: Collection[str]
    """Topics of other members, whose metadata the leader of a classic group needs."""
    wants_metadata: bool
    """True while the machine waits for `metadata_changed`."""
    forgets_coordinator: bool
    """Set when an answer shows that the coordinator has moved. The owner resets it."""

    @property
    def event(self) -> Event | None: ...
    def event_done(self) -> None: ...
    @property
    def is_out(self) -> bool: ...
    def subscribe(self, topics: Collection[str]) -> None: ...
    def polled(self) -> None: ...
    def metadata_changed(self) -> None: ...
    def leave(self) -> None: ...
    def begin_again(self) -> None: ...
    def rejoin(self) -> None: ...
    def next_ask(self) -> Ask | None: ...
    def wakes_ms(self) -> float: ...
    def answered(self, ask: Ask, answer: Message) -> None: ...
    def failed(self, ask: Ask, error: Exception) -> None: ...


class RetryTimer:
    """Pause before the next request after failures."""

    def __init__(self, clock: Clock, randomness: Randomness, backoff: Backoff) -> None:
        self._clock = clock
        self._randomness = randomness
        self._backoff = backoff
        self._failures = 0
        self.until_ms = -math.inf

    def failed(self) -> None:
        pause_ms = spread(self._backoff.after_ms(self._failures), self._randomness)
        self._failures += 1
        self.until_ms = self._clock.monotonic_ms() + pause_ms

    def succeeded(self) -> None:
        self._failures = 0
        self.until_ms = -math.inf


class PollTimer:
    """Deadline of the application: it takes records within `max.poll.interval.ms`."""

    def __init__(self, clock: Clock, interval_ms: float) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self.due_ms = clock.monotonic_ms() + interval_ms

    def polled(self) -> None:
        self.due_ms = self._clock.monotonic_ms() + self._interval_ms

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic_ms() >= self.due_ms
