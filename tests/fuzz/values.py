"""Values for any field of any message, from its declaration: mostly plausible, often at an edge.

Numbers are negative, zero or as large as their field; text is empty, long, repeated, of another user; arrays
are empty, repeat an element, or are large. `Random` decides how often. It is the only source of chance, so
the same seed gives the same messages.
"""

from __future__ import annotations

from random import Random
from typing import Any

from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.protocol.schema.declarations import FRESH, Field, Kind
from barnabas.protocol.schema.message import Message
from tests.fuzz.pool import GROUPS, TOPICS, TRANSACTIONS, USERS, Pool
from tests.support import hostile

BITS = {"int8": 8, "int16": 16, "uint16": 17, "int32": 32, "int64": 64}
LONG = "y" * 32_767
TEXTS = (
    "",
    "a",
    "\0",
    "🐞",
    "x" * 300,
    "..",
    "../..",
    "1",
    "-1",
    "true",
    "range",
    "uniform",
    "consumer",
    "a.*b",
)
PATTERNS = ("a.*", "(a|b)*c", "fuzz-.*", "[", "(x+x+)+y", "a{1,1000}", "", "hidden-.*", "\\d{1000}")
CONFIGS = (
    *hostile.CONFIG_KEYS,
    *("retention.bytes", "max.message.bytes", "message.timestamp.type", "consumer.heartbeat.interval.ms"),
    *("producer_byte_rate", "request_percentage", "connection_creation_rate"),
)
COUNTS = (0, 1, 1, 1, 1, 2, 2, 3)
MANY = (40, 300, 2_000)
WAITS_MS = (-1, 0, 0, 1, 20, 50, -(2**31))
WAITS_SENT = ("max_wait_ms", "timeout_ms", "max_wait_time")


class Values:
    """`many` is how often an array is large, `long` how often text is."""

    def __init__(
        self, random: Random, pool: Pool | None = None, *, many: float = 0.0, long: float = 0.0
    ) -> None:
        self._random = random
        self._pool = pool or Pool()
        self._many = many
        self._long = long

    def message(self, cls: type[Message], version: int, depth: int = 0) -> Any:
        return cls(
            **{
                field.name: self._of_field(field, version, depth)
                for field in cls.__schema__.fields
                if version in field.versions
            }
        )

    def _of_field(self, field: Field, version: int, depth: int) -> Any:
        chance = self._random.random()
        if version in field.nullable and chance < 0.15:
            return None
        if field.tag is not None and chance < 0.5:
            return [] if field.default is FRESH else field.default
        return self._of_kind(field, field.kind, version, depth)

    def _of_kind(self, field: Field, kind: Kind, version: int, depth: int) -> Any:
        if kind.element is not None:
            return self._array(field, kind.element, version, depth)
        if kind.message is not None:
            assert issubclass(kind.message, Message)
            return self.message(kind.message, version, depth + 1)
        return self.scalar(field.name, kind.name)

    def _array(self, field: Field, element: Kind, version: int, depth: int) -> list[Any]:
        random = self._random
        count = random.choice(COUNTS)
        items = [self._of_kind(field, element, version, depth) for _ in range(count)]
        if items and random.random() < 0.15:
            items.append(random.choice(items))
        if items and depth < 2 and random.random() < self._many:
            items *= random.choice(MANY)
            self._many = 0.0  # once in a message: many of many would be gigabytes
        return items

    def scalar(self, name: str, kind: str) -> Any:
        random = self._random
        if random.random() < 0.6:
            known = self._pool.known(name, random)
            if known is not None and fits(known, kind):
                return known
        if kind == "string":
            return self._text(name)
        if kind == "bool":
            return random.random() < 0.5
        if kind in BITS:
            return self._number(name, kind)
        if kind in ("bytes", "records"):
            return random.choice(hostile.BLOBS)(random)
        if kind == "uuid":
            return random.choice((ZERO_UUID, Uuid(b"\xff" * 16), Uuid(random.randbytes(16))))
        return random.choice((0.0, -1.5, 1e300, float("inf"), 1_000_000.0))

    def _text(self, name: str) -> str:
        random = self._random
        if random.random() < self._long:
            return random.choice((LONG, "ß" * 16_000, "z" * 5_000))
        if random.random() < 0.1:
            return random.choice(TEXTS)
        return random.choice(_names_of(name))

    def _number(self, name: str, kind: str) -> int:
        random = self._random
        high = 1 << (BITS[kind] - 1)
        low = 0 if kind == "uint16" else -high
        if name in WAITS_SENT:
            # A long wait is legal, and a run that waits tells nothing.
            return random.choice([each for each in WAITS_MS if low <= each < high])
        if random.random() < 0.6:
            return random.choice(_plausible(name))
        edges = (0, 1, -1, high - 1, low, low + 1, high - 2)
        return random.choice([each for each in edges if low <= each < high])


def fits(value: Any, kind: str) -> bool:
    if kind == "uuid":
        return isinstance(value, bytes) and len(value) == 16
    if kind == "string":
        return isinstance(value, str)
    if kind in ("bytes", "records"):
        return isinstance(value, bytes | bytearray | memoryview)
    if kind not in BITS or not isinstance(value, int):
        return False
    high = 1 << (BITS[kind] - 1)
    return (0 if kind == "uint16" else -high) <= value < high


NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("instance", ("instance-1", "instance-2")),
    ("protocol_type", ("consumer", "connect")),
    ("protocol", ("range", "roundrobin", "range")),
    ("group", GROUPS),
    ("transactional_id", TRANSACTIONS),
    ("regex", PATTERNS),
    ("pattern", PATTERNS),
    ("topic", TOPICS),
    ("principal", tuple(f"User:{user}" for user in USERS)),
    ("user", USERS),
    ("host", ("*", "127.0.0.1", "::1")),
    ("config", CONFIGS),
    ("entity_type", ("user", "client-id", "ip")),
    ("entity_name", ("alice", "fuzz", "127.0.0.1")),
    ("resource_name", (*TOPICS[:3], *GROUPS, "kafka-cluster", "*", "0", "")),
    ("assignor", ("uniform", "range")),
    ("value", (*hostile.CONFIG_VALUES[:11], "compact", "1048576")),
    ("key", (*GROUPS, *TRANSACTIONS, *CONFIGS[:3])),
    ("name", (*TOPICS, *GROUPS, *CONFIGS)),
    ("mechanism", ("PLAIN", "SCRAM-SHA-256")),
)


def _names_of(name: str) -> tuple[str, ...]:
    return next((names for part, names in NAMES if part in name), TEXTS)


def _plausible(name: str) -> tuple[int, ...]:
    if "timeout" in name or name.endswith("_ms"):
        return (6_000, 10_000, 45_000, 300_000, -1, 0)
    if "partition" in name or name == "index":
        return (0, 0, 0, 1, 2)
    if "epoch" in name or "generation" in name:
        return (-1, 0, 0, 1, 2)
    if "offset" in name or "timestamp" in name:
        return (0, 0, 1, -1, -2, -3, 5)
    if "bytes" in name:
        return (0, 1, 1_000, 1 << 20, 50 << 20)
    if "replica" in name or "broker" in name or "node" in name:
        return (-1, -1, 0, 1)
    if "count" in name or "factor" in name or "num_" in name:
        return (1, 1, 2, -1, 3)
    return (0, 1, 2, 3, -1)
