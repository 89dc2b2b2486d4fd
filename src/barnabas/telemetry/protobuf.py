"""Reader of protobuf's wire format, for the few messages of OpenTelemetry that clients push.

A message is a sequence of fields: a key (number and wire type) and a value. The reader yields them and copies
nothing: values of length-delimited fields are views. It checks every length against the bytes that are there,
so no value can claim memory. Groups, which protobuf has given up, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias

from barnabas.core.errors import InvalidRecord

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX: Final = 10

_DOUBLE = Struct("<d")
_SIGNED64 = Struct("<q")

Value: TypeAlias = int | memoryview
"""A varint, or the bytes of any other field."""


def fields(message: memoryview) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field."""
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        wire_type = key & 7
        if wire_type == VARINT:
            number, position = _varint(message, position)
            yield key >> 3, wire_type, number
            continue
        if wire_type == BYTES:
            size_bytes, position = _varint(message, position)
        elif wire_type == FIXED64:
            size_bytes = 8
        elif wire_type == FIXED32:
            size_bytes = 4
        else:
            raise InvalidRecord(f"the metrics have a field of wire type {wire_type}")
        if size_bytes > end - position:
            raise InvalidRecord("the metrics end within a field")
        yield key >> 3, wire_type, message[position : position + size_bytes]
        position += size_bytes


def as_bytes(wire_type: int, value: Value) -> memoryview:
    """A length-delimited field: a string or a message."""
    if wire_type != BYTES or isinstance(value, int):
        raise InvalidRecord("the metrics have a number instead of a message")
    return value


def as_text(wire_type: int, value: Value) -> str:
    try:
        return str(as_bytes(wire_type, value), "utf-8")
    except UnicodeDecodeError:
        raise InvalidRecord("the metrics have a text that is not UTF-8") from None


def as_double(wire_type: int, value: Value) -> float:
    found: float = _DOUBLE.unpack(_fixed64(wire_type, value))[0]
    return found


def as_signed64(wire_type: int, value: Value) -> int:
    found: int = _SIGNED64.unpack(_fixed64(wire_type, value))[0]
    return found


def _fixed64(wire_type: int, value: Value) -> memoryview:
    if wire_type != FIXED64 or isinstance(value, int):
        raise InvalidRecord("the metrics have another type of number than expected")
    return value


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """The number at this position, and the position behind it."""
    found = shift = 0
    for byte in message[position : position + VARINT_BYTES_MAX]:
        position += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, position
        shift += 7
    raise InvalidRecord("the metrics end within a number, or have one of more than ten bytes")
