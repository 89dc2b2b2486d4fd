"""The largest request of any API: one of its arrays as long as the limits allow, with distinct or equal
elements. Requests that a broker closes the connection for are made smaller until it answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.schema.declarations import Field, Kind
from barnabas.protocol.schema.message import Message
from tests.support import hostile, wire

FRAME_BYTES_MAX = 15 << 20
TEXTS = (
    *(("assignor", "uniform"), ("protocol_type", "consumer"), ("regex", "fuzz-.*"), ("member", "member")),
    *(("transactional", "txn-a"), ("principal", "User:alice")),
)
NUMBERS = {"resource_type": 2, "pattern_type": 3, "operation": 3, "permission_type": 3, "acks": 1,
           "num_partitions": 1, "replication_factor": 1, "response_partition_limit": 2_000,
           "partition_max_bytes": 1 << 20, "max_bytes": 1 << 20, "producer_id": 1}  # fmt: skip


class Largest:
    """Fills the arrays at one depth of a message; all others have one element."""

    def __init__(self, depth: int, count: int, *, is_repeated: bool) -> None:
        self._depth = depth
        self._count = count
        self._is_repeated = is_repeated
        self._numbers = itertools.count()

    def message(self, cls: type[Message], version: int, depth: int = 0) -> Any:
        fields = [field for field in cls.__schema__.fields if version in field.versions]
        return cls(**{field.name: self._field(field, version, depth) for field in fields})

    def _field(self, field: Field, version: int, depth: int) -> Any:
        element = field.kind.element
        if element is None:
            return self._value(field.name, field.kind, version, depth)
        count = self._count if depth == self._depth else 1
        if self._is_repeated:
            return [self._value(field.name, element, version, depth)] * count
        return [self._value(field.name, element, version, depth) for _ in range(count)]

    def _value(self, name: str, kind: Kind, version: int, depth: int) -> Any:
        if kind.message is not None:
            assert issubclass(kind.message, Message)
            return self.message(kind.message, version, depth + 1)
        number = 0 if self._is_repeated else next(self._numbers)
        if kind.name == "string":
            plain = f"group-{number}" if "group" in name or name == "key" else f"fuzz-{number}"
            return next((text for part, text in TEXTS if part in name), plain)
        if kind.name in ("bytes", "records"):
            return wire.batch([b"v"])
        if kind.name == "uuid":
            return ZERO_UUID if self._is_repeated else Uuid(number.to_bytes(16, "big"))
        if kind.name in ("bool", "float64"):
            return kind.name == "bool" or 1.0
        if "partition" in name or name == "index":
            return NUMBERS.get(name, number % 100_000)
        if name.endswith("_ms") and "wait" not in name and "lifetime" not in name:
            return 10_000
        return NUMBERS.get(name, -1 if "epoch" in name or "generation" in name or "replica" in name else 0)


def frames(key: ApiKey, version: int, count: int) -> Iterator[tuple[str, list[bytes]]]:
    """For each depth and kind, frames from the largest to smaller ones."""
    for depth in range(_depth(request_class(key), version) + 1):
        for is_repeated in (False, True):
            found: list[bytes] = []
            left = count
            while left > 100:
                drawn = Largest(depth, left, is_repeated=is_repeated).message(request_class(key), version)
                frame = hostile.frame_of(key, version, drawn)
                if len(frame) < FRAME_BYTES_MAX:
                    found.append(frame)
                left = left * 2 // 3
            yield f"{key.name} v{version}, depth {depth}{', repeated' if is_repeated else ''}", found


def _depth(cls: Any, version: int, depth: int = 0) -> int:
    """Of the innermost array; -1 if there is none."""
    deepest = -1
    for field in cls.__schema__.fields:
        if version in field.versions:
            kind = field.kind.element or field.kind
            deepest = max(deepest, depth if field.kind.element is not None else -1)
            if kind.message is not None:
                deepest = max(deepest, _depth(kind.message, version, depth + 1))
    return deepest
