"""Comparison of a recorded answer with the replayed one.

Two runs differ in what a broker invents: ids, addresses, epochs, times. These are left out (`INVENTED`). Ids
that later requests repeat are learned instead: `Learned` maps the recorded id to the new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.core.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
)
from barnabas.protocol.schema.message import Message
from barnabas.records.batch import HEADER_BYTES, iterate_batches
from barnabas.records.record import iterate_records

LEARNED: Final = {
    "topic_id": "topic",
    "producer_id": "producer",
    "producer_epoch": "producer epoch",
    "member_id": "member",
    "leader": "member",
    "session_id": "session",
    "generation_id": "generation",
    "member_epoch": "member epoch",
    "client_instance_id": "client instance",
    "subscription_id": "subscription",
}
"""Fields whose values later requests repeat, and the kind of value."""
INVENTED: Final = frozenset({
    "throttle_time_ms", "host", "port", "rack", "cluster_id", "node_id", "broker_id", "controller_id",
    "leader_id", "leader_epoch", "current_leader", "node_endpoints", "replica_nodes", "isr_nodes",
    "offline_replicas", "preferred_read_replica", "log_append_time_ms", "heartbeat_interval_ms",
    "coordinator", "client_host", "error_message", "key", "coordinators", "auth_bytes", "session_lifetime_ms",
    "topic_authorized_operations", "cluster_authorized_operations", "authorized_operations",
    "finalized_features_epoch",
})  # fmt: skip
PASSING: Final = frozenset({
    each.code
    for each in (
        CoordinatorLoadInProgress, CoordinatorNotAvailable, ConcurrentTransactions, LeaderNotAvailable,
        NotLeaderOrFollower,
    )
})  # fmt: skip
"""Errors of a broker that is about to be ready. Clients try again, and so does the replay."""
_ERROR: Final = "error_code"
_RECORDS: Final = "records"
SHOWN_CHARS_MAX: Final = 200


class Difference(NamedTuple):
    """A field in which two answers differ."""

    where: str
    recorded: str
    replayed: str
    may_pass: bool = False
    """Whether it is an error that passes by itself, such as a coordinator that loads."""

    def __str__(self) -> str:
        return f"{self.where}: recorded {self.recorded}, replayed {self.replayed}"


class Learned:
    """Values of the replay for values of the recording."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Any], Any] = {}

    def note(self, kind: str, recorded: Any, replayed: Any) -> None:
        self._values[kind, recorded] = replayed

    def value_for(self, kind: str, recorded: Any) -> Any:
        return self._values.get((kind, recorded), recorded)


def compare(recorded: Message, replayed: Message, learned: Learned) -> list[Difference]:
    """Differences of two answers to one request. Ids are learned from them."""
    return list(_differences("", recorded, replayed, learned))


def _differences(where: str, one: Any, other: Any, learned: Learned) -> Iterator[Difference]:
    if isinstance(one, Message) and isinstance(other, Message):
        for field in type(one).__schema__.fields:
            name = field.name
            mine, theirs = getattr(one, name), getattr(other, name)
            if name in LEARNED:
                learned.note(LEARNED[name], mine, theirs)
            elif name == _RECORDS:
                yield from _compared(f"{where}.{name}", _records_of(mine), _records_of(theirs))
            elif name not in INVENTED:
                yield from _differences(f"{where}.{name}", mine, theirs, learned)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (mine, theirs) in enumerate(zip(_ordered(one), _ordered(other), strict=True)):
            yield from _differences(f"{where}[{at}]", mine, theirs, learned)
    else:
        yield from _compared(where, one, other)


def _compared(where: str, one: Any, other: Any) -> Iterator[Difference]:
    if one != other:
        may_pass = where.endswith(_ERROR) and (one in PASSING or other in PASSING)
        yield Difference(where.removeprefix("."), _shown(where, one), _shown(where, other), may_pass)


def _ordered(elements: list[Any]) -> list[Any]:
    """Brokers list topics, partitions and groups in any order."""
    return sorted(elements, key=_place_of)


def _place_of(element: Any) -> tuple[str, int]:
    for name in ("name", "topic", "topic_name", "group_id"):
        if isinstance(getattr(element, name, None), str):
            return getattr(element, name), 0
    for name in ("partition_index", "partition", "index", "api_key"):
        if isinstance(getattr(element, name, None), int):
            return "", getattr(element, name)
    return "", 0


def _shown(where: str, value: Any) -> str:
    if where.endswith(_ERROR) and isinstance(value, int):
        found = KafkaError.by_code.get(value)
        return "no error" if value == 0 else f"{value} ({found.protocol_name() if found else 'unknown'})"
    if isinstance(value, list):
        return f"{len(value)} elements: {value!r}"[:SHOWN_CHARS_MAX]
    return repr(value)[:SHOWN_CHARS_MAX]


def _records_of(data: Any) -> Any:
    """Offsets, keys, values and headers; times and producers are invented."""
    if data is None or len(data) < HEADER_BYTES:
        return []
    try:
        return [
            (each.offset, each.key, each.value, each.headers)
            for batch in iterate_batches(memoryview(bytearray(data)))
            for each in iterate_records(batch)
        ]
    except KafkaError:
        return bytes(data)
