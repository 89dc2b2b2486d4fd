"""Requests and responses of clients during faults, as the checker reads them.

Every value is written once, by one producer, and names both: `producer` and `number`. An attempt to write
ends in one of three ways: acknowledged with an offset, refused for good, or unknown. Without a response a
value may be in the log or not, but not twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

ALL_REPLICAS = -1


class Outcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Value(NamedTuple):
    producer: str
    number: int
    transaction: str = ""
    """The attempt that it was written in, for transactional ones."""

    def encode(self) -> bytes:
        return json.dumps(list(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Value:
        producer, number, transaction = json.loads(data)
        return cls(producer, number, transaction)


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


class Producer(NamedTuple):
    """Within one epoch of one id nothing is written twice. A client that takes a new id numbers unanswered
    batches again, and may write them a second time."""

    id: int
    epoch: int


@dataclass(slots=True)
class Write:
    value: Value
    topic: str
    partition: int
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    acks: int = ALL_REPLICAS
    began_s: float = 0.0
    """When it was handed to the client; it was sent later."""
    answered_s: float = 0.0
    """Time at which the client received its end; the broker decided earlier."""
    broker: int | None = None
    """The broker that was asked, of a client that knows it."""


@dataclass(slots=True)
class Reading:
    """Records that one consumer got from one partition between an assignment and its end, in order."""

    consumer: str
    topic: str
    partition: int
    seen: list[tuple[int, Value]] = field(default_factory=list)


@dataclass(slots=True)
class Transaction:
    """One attempt: its values are visible to committed readers all together, or none is."""

    name: str
    values: list[Value] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN
    """ACKNOWLEDGED means committed, REFUSED means aborted."""


@dataclass(slots=True)
class Life:
    """A topic between its creation and its deletion, of several under the same name."""

    topic: str
    number: int
    groups: list[str] = field(default_factory=list)
    """Groups with acknowledged offset commits for it, in this life of the topic only."""
    is_over: bool = False
    """It was deleted: another topic was made under its name."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction as the leader of a partition knows it."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    coordinator_state: str = ""
    """Its state at the coordinator; None if no coordinator knows the producer."""


@dataclass(slots=True)
class Undecided:
    """A partition whose end readers of committed records do not reach, long after all clients have
    stopped."""

    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    open: list[OpenTransaction] = field(default_factory=list)


@dataclass(slots=True)
class History:
    writes: list[Write] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    final: dict[tuple[str, int], list[tuple[int, Value]]] = field(default_factory=dict)
    """Every partition at the end, read from its start after all has healed."""
    final_committed: dict[tuple[str, int], list[tuple[int, Value]]] = field(default_factory=dict)
    """The same under read_committed."""
    epochs: dict[Place, int] = field(default_factory=dict)
    """The leader epochs of what is in `final`, of partitions where they are asked for."""
    leaders: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    """The leader of each epoch of a partition, or -1; epochs that are missing are unknown."""
    producers: dict[Place, Producer] = field(default_factory=dict)
    """Producers of the records in `final`, as the log has them, of partitions where it is asked for."""
    pipelining: set[str] = field(default_factory=set)
    """Producers whose clients have several requests in flight."""
    copied: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name of a copying pipeline to its input and output topics: exactly once from one to the other."""
    lives: list[Life] = field(default_factory=list)
    final_offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    """Committed offsets of groups at the end, by topic and partition."""
    undecided: list[Undecided] = field(default_factory=list)
