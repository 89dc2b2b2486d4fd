"""Frames of any request, drawn as bytes: the walk over declarations is done once for an API and version.

`Values` draws messages that are encoded afterwards. Here every field is a table of 512 encoded values, with
the shares that `Values` has, and a draw is a lookup. A frame takes a tenth of the time of a message. Text is
long and arrays are large only in a `large` drawing. Ids of the broker come from the pool, as they are known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.schema.declarations import Field, Kind, MessageType
from barnabas.protocol.schema.primitives import unsigned_varint
from tests.fuzz.pool import LEARNED, SHARED, Pool
from tests.fuzz.values import COUNTS, MANY, WAITS_SENT, Values, fits

TABLE_BITS = 9
TABLE = 1 << TABLE_BITS
LONG, LONG_IF_LARGE = 0.004, 0.1
WAITS_MS = (-1, 0, 0, 0, 0, 0, 1, 20)
"""Requests of a connection wait for each other: few of them wait for data."""
LARGE_BYTES_MAX = 1 << 20
KNOWN_OF_16, NULL_OF_512, REPEATED_OF_512 = 10, 77, 77


class Drawing:
    """The source of chance and of known ids, for one frame after the other."""

    __slots__ = ("bits", "is_large", "large", "pool", "random")

    def __init__(self, random: Random, pool: Pool, large: float = 0.02) -> None:
        self.random = random
        self.bits = random.getrandbits
        self.pool = pool
        self.large = large
        """Frequency of a request."""
        self.is_large = False


Draw = Callable[[Drawing], bytes]


def frame(drawing: Drawing, key: ApiKey, version: int, correlation_id: int, client_id: bytes) -> bytes:
    """One request of this API and version, with its header."""
    end, draw = body(key, version)
    return (
        struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id + end + draw(drawing)
    )


@cache
def body(key: ApiKey, version: int) -> tuple[bytes, Draw]:
    """The end of its header and its body."""
    cls = request_class(key)
    is_flexible = version in cls.__schema__.flexible
    return b"\0" if is_flexible else b"", _struct(cls, version, is_flexible, 0)


def _struct(cls: MessageType, version: int, is_flexible: bool, depth: int) -> Draw:
    fields = [field for field in cls.__schema__.fields if version in field.versions]
    parts = [_field(field, version, is_flexible, depth) for field in fields if field.tag is None]
    if is_flexible:
        tagged = sorted((field for field in fields if field.tag is not None), key=lambda each: each.tag or 0)
        parts.append(_tagged([(each.tag or 0, _field(each, version, True, depth)) for each in tagged]))

    def draw(drawing: Drawing) -> bytes:
        return b"".join([part(drawing) for part in parts])

    return draw


def _tagged(fields: list[tuple[int, Draw]]) -> Draw:
    """Half of the tagged fields are left out."""

    def draw(drawing: Drawing) -> bytes:
        chosen = [(tag, part(drawing)) for tag, part in fields if drawing.bits(1)]
        sized = [unsigned_varint(tag) + unsigned_varint(len(data)) + data for tag, data in chosen]
        return unsigned_varint(len(sized)) + b"".join(sized)

    return draw if fields else lambda _: b"\0"


def _field(field: Field, version: int, is_flexible: bool, depth: int) -> Draw:
    draw = _kind(field, field.kind, version, is_flexible, depth)
    if version not in field.nullable:
        return draw
    if field.kind.message is not None:
        return lambda drawing: b"\xff" if drawing.bits(9) < NULL_OF_512 else b"\1" + draw(drawing)
    null = b"\0" if is_flexible else b"\xff\xff" if field.kind.name == "string" else b"\xff\xff\xff\xff"
    return lambda drawing: null if drawing.bits(9) < NULL_OF_512 else draw(drawing)


def _kind(field: Field, kind: Kind, version: int, is_flexible: bool, depth: int) -> Draw:
    if kind.element is not None:
        return _array(_kind(field, kind.element, version, is_flexible, depth), is_flexible, depth)
    if kind.message is not None:
        return _struct(kind.message, version, is_flexible, depth + 1)
    return _scalar(field.name, kind, is_flexible)


def _array(element: Draw, is_flexible: bool, depth: int) -> Draw:
    def draw(drawing: Drawing) -> bytes:
        bits = drawing.bits
        items = [element(drawing) for _ in range(COUNTS[bits(3)])]
        if items and bits(9) < REPEATED_OF_512:
            items.append(items[0])
        data, count = b"".join(items), len(items)
        if data and depth < 2 and drawing.is_large and bits(1):
            times = min(drawing.random.choice(MANY), max(LARGE_BYTES_MAX // len(data), 1))
            data, count = data * times, count * times
            drawing.is_large = False  # once in a message: many of many would be gigabytes
        return _length(count, is_flexible) + data

    return draw


def _length(count: int, is_flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if is_flexible else count.to_bytes(4, "big")


def _scalar(name: str, kind: Kind, is_flexible: bool) -> Draw:
    table, large = table_of(name, kind.name, kind.code, is_flexible)

    def draw(drawing: Drawing) -> bytes:
        return (large if drawing.is_large else table)[drawing.bits(TABLE_BITS)]

    learned = SHARED.get(name, name)
    if learned not in LEARNED:
        return draw

    def draw_known(drawing: Drawing) -> bytes:
        if drawing.bits(4) < KNOWN_OF_16:
            known = drawing.pool.known(learned, drawing.random)
            if known is not None and fits(known, kind.name):
                return encoded(known, kind.name, kind.code, is_flexible)
        return draw(drawing)

    return draw_known


@cache
def table_of(name: str, kind: str, code: str, is_flexible: bool) -> tuple[list[bytes], list[bytes]]:
    """Encoded values of a field, and those of a large drawing. They are the same in every run."""

    def of(long: float) -> list[bytes]:
        random = Random(f"{name} {kind} {long}")
        values = Values(random, long=long)
        if name in WAITS_SENT:
            drawn = [random.choice(WAITS_MS) for _ in range(TABLE)]
        else:
            drawn = [values.scalar(name, kind) for _ in range(TABLE)]
        return [encoded(each, kind, code, is_flexible) for each in drawn]

    usual = of(LONG)
    return usual, of(LONG_IF_LARGE) if kind == "string" else usual


def encoded(value: Any, kind: str, code: str, is_flexible: bool) -> bytes:
    if kind == "string":
        raw: bytes = value.encode()
        return (unsigned_varint(len(raw) + 1) if is_flexible else len(raw).to_bytes(2, "big")) + raw
    if kind in ("bytes", "records"):
        return _length(len(value), is_flexible) + bytes(value)
    if kind == "uuid":
        return bytes(value)
    return struct.pack(f">{code}", value)
