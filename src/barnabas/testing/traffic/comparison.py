"""Comparison of a recorded answer with the replayed one.

Two runs differ in what a broker invents: ids, addresses, epochs, times. These are left out (`INVENTED`). Ids
that later requests repeat are learned instead: `Learned` maps the recorded id to the new one.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from types import MappingProxyType
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
    "v3_and_below_producer_id": "producer",
    "member_id": "member",
    "leader": "member",
    "session_id": "session",
    "client_instance_id": "client instance",
    "subscription_id": "subscription",
}
"""Fields whose values later requests repeat, and the kind of value."""
COUNTED: Final = {
    "producer_epoch": ("producer epoch", "producer_id"),
    "v3_and_below_producer_epoch": ("producer epoch", "v3_and_below_producer_id"),
    "generation_id": ("generation", "member_id"),
    "member_epoch": ("generation", "member_id"),
    "generation_id_or_member_epoch": ("generation", "member_id"),
}
"""Numbers that later requests repeat, their kind, and the field whose value has the number. Two producers
have the same epoch in one run, and different ones in the other."""
INVENTED: Final = frozenset({
    "throttle_time_ms", "host", "port", "rack", "cluster_id", "node_id", "broker_id", "controller_id",
    "leader_id", "leader_epoch", "current_leader", "node_endpoints", "replica_nodes", "isr_nodes",
    "offline_replicas", "preferred_read_replica", "log_append_time_ms", "heartbeat_interval_ms",
    "coordinator", "client_host", "error_message", "key", "coordinators", "auth_bytes", "session_lifetime_ms",
    "topic_authorized_operations", "cluster_authorized_operations", "authorized_operations",
    "finalized_features_epoch",
})  # fmt: skip
_NO_IDS: Final = (None, "", -1)
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
    """Whether the error is transient, such as a coordinator that loads."""

    def __str__(self) -> str:
        return f"{self.where}: recorded {self.recorded}, replayed {self.replayed}"


class Learned:
    """Values of the replay for values of the recording."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Any, Any], Any] = {}

    def note(self, kind: str, recorded: Any, replayed: Any, owner: Any = None) -> None:
        """Of numbers, `owner` is the recorded id that has the number."""
        self._values[kind, owner, recorded] = replayed

    def value_for(self, kind: str, recorded: Any, owner: Any = None) -> Any:
        return self._values.get((kind, owner, recorded), recorded)


Owners = Mapping[str, Any]
"""Ids of a recorded request, for an answer that does not repeat them."""


def owners_in(message: Message) -> Owners:
    found = {field: getattr(message, field, None) for _, field in COUNTED.values()}
    return {field: value for field, value in found.items() if value not in _NO_IDS}


def compare(
    recorded: Message, replayed: Message, learned: Learned, owners: Owners = MappingProxyType({})
) -> list[Difference]:
    """Differences of two answers to one request. Ids are learned from them."""
    return list(_differences("", recorded, replayed, learned, owners))


def _differences(where: str, one: Any, other: Any, learned: Learned, owners: Owners) -> Iterator[Difference]:
    if isinstance(one, Message) and isinstance(other, Message):
        if getattr(one, "is_internal", False) and getattr(other, "is_internal", False):
            return  # an internal topic has as many partitions as the settings of its broker say
        for field in type(one).__schema__.fields:
            name = field.name
            mine, theirs = getattr(one, name), getattr(other, name)
            if name in LEARNED:
                learned.note(LEARNED[name], mine, theirs)
            elif name in COUNTED:
                kind, owner = COUNTED[name]
                learned.note(kind, mine, theirs, owners_in(one).get(owner, owners.get(owner)))
            elif name == _RECORDS:
                yield from _compared(f"{where}.{name}", _records_of(mine), _records_of(theirs))
            elif name not in INVENTED:
                yield from _differences(f"{where}.{name}", mine, theirs, learned, owners)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, (mine, theirs) in enumerate(zip(_ordered(one), _ordered(other), strict=True)):
            place = _name_of(mine) if _name_of(mine) == _name_of(theirs) else None
            named = f"{where}[{at if place is None else place}]"
            yield from _differences(named, mine, theirs, learned, owners)
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
    name = _name_of(element)
    return (name, 0) if isinstance(name, str) else ("", name or 0)


def _name_of(element: Any) -> str | int | None:
    """The name or number by which an element of a list differs from the others."""
    for name in ("name", "topic", "topic_name", "group_id"):
        if isinstance(found := getattr(element, name, None), str) and found:
            return found
    for name in ("partition_index", "partition", "index", "api_key"):
        if isinstance(found := getattr(element, name, None), int):
            return found
    return None


def _shown(where: str, value: Any) -> str:
    if where.endswith(_ERROR) and isinstance(value, int):
        found = KafkaError.by_code.get(value)
        return "no error" if value == 0 else f"{value} ({found.protocol_name() if found else 'unknown'})"
    if not isinstance(value, list):
        return _cut(_element(value))
    if not value:
        return "none"
    listed = ", ".join(map(_element, _ordered(value[:SHOWN_CHARS_MAX])))
    return f"{len(value)} ({_cut(listed)})"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[: SHOWN_CHARS_MAX - 1]}…"


def _element(value: Any) -> str:
    """An element by its name, or by all its fields if it has none."""
    if isinstance(value, _Record):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value))
    if isinstance(value, Message):
        if (name := _name_of(value)) is not None:
            return str(name)
        fields = ((each.name, getattr(value, each.name)) for each in type(value).__schema__.fields)
        return " ".join(f"{name}={_element(held)}" for name, held in fields)
    if isinstance(value, list):
        return f"[{', '.join(map(_element, value[:SHOWN_CHARS_MAX]))}]"
    return "null" if value is None else str(value) or '""'


class _Record(NamedTuple):
    """Fields of a record that two runs must have in common; times and producers differ."""

    offset: int
    key: Any
    value: Any
    headers: Any

    def __str__(self) -> str:
        key = "" if self.key is None else f"{_text(self.key)}="
        value = "null" if self.value is None else _text(self.value)
        headers = "".join(f" {name}:{'null' if held is None else _text(held)}" for name, held in self.headers)
        return f"offset {self.offset} {key}{value}{headers}"


def _text(data: Any) -> str:
    """Bytes as text where they are text, and as hexadecimal digits where they are not."""
    start = bytes(data[:SHOWN_CHARS_MAX])
    try:
        text = codecs.utf_8_decode(start, "strict", False)[0]  # the end may be within a character
    except UnicodeDecodeError:
        text = ""
    return text if text.isprintable() and (text or not start) else f"0x{start.hex()}"


def _records_of(data: Any) -> Any:
    if data is None or len(data) < HEADER_BYTES:
        return []
    try:
        return [
            _Record(each.offset, each.key, each.value, each.headers)
            for batch in iterate_batches(memoryview(bytearray(data)))
            for each in iterate_records(batch)
        ]
    except KafkaError:
        return bytes(data)
