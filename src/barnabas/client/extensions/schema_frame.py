"""Framing with which records name their schema in a registry: Confluent's wire format.

A framed record is a zero byte, four bytes of schema id, and the payload. In Protobuf the payload begins with
the place of the message in its file: a count, and that many indexes. No indexes mean the first message.
"""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = 0
HEADER: Final = struct.Struct(">BI")
PLACES_MAX: Final = 32
"""Indexes of a place: messages nest no deeper."""
_VARINT_BYTES_MAX: Final = 10


class UnframedRecord(Exception):
    """The bytes do not begin with the framing; the message says what is wrong."""


def is_framed(value: bytes) -> bool:
    return len(value) >= HEADER.size and value[0] == MAGIC


def unframe(value: bytes) -> tuple[int, bytes]:
    """Schema id and payload."""
    if not is_framed(value):
        raise UnframedRecord("the value does not begin with a zero byte and a schema id")
    return HEADER.unpack_from(value)[1], value[HEADER.size :]


def frame(schema_id: int, payload: bytes) -> bytes:
    return HEADER.pack(MAGIC, schema_id) + payload


def place_of(payload: bytes) -> tuple[list[int], bytes]:
    """Indexes of a Protobuf message in its file, and the message."""
    count, at = _zigzag(payload, 0)
    if not 0 <= count <= PLACES_MAX:
        raise UnframedRecord("the value names no place of its message in the schema")
    places = []
    for _ in range(count):
        place, at = _zigzag(payload, at)
        places.append(place)
    return places or [0], payload[at:]


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in payload[at : at + _VARINT_BYTES_MAX]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise UnframedRecord("the value ends within the place of its message")
