"""Zigzag varints of the fields of a v2 record.

A byte holds seven bits, lowest first; the eighth bit marks that more follow. Zigzag folds the sign into bit
0. A varint has at most 5 bytes and a varlong at most 10: a longer one is corrupt and is not read further.
Bits past the 32nd or 64th fall off, as in Java.

Every reader returns the value and the position after it. Reading past the end of the buffer is a malformed
record and raises InvalidRecord.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.errors import InvalidRecord

Buffer = bytes | bytearray | memoryview
"""Anything whose bytes can be read in place."""

INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)


def wrap_int64(value: int) -> int:
    """`value` in 64 bits: sums of timestamps overflow as in Java."""
    return (
        value if INT64_MIN <= value <= INT64_MAX else ((value - INT64_MIN) & 0xFFFFFFFFFFFFFFFF) + INT64_MIN
    )


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """A 32-bit zigzag varint: (value, position after it)."""
    try:
        byte = buffer[position]
        if byte < 0x80:  # most lengths and deltas fit in one byte
            return (byte >> 1) ^ -(byte & 1), position + 1
        second = buffer[position + 1]
        value = byte & 0x7F | (second & 0x7F) << 7
        if second < 0x80:
            return (value >> 1) ^ -(value & 1), position + 2
        position += 1
        for shift in (14, 21, 28):
            position += 1
            byte = buffer[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= 0xFFFFFFFF
                return (value >> 1) ^ -(value & 1), position + 1
    except IndexError:
        raise InvalidRecord("A varint runs past the end of its buffer") from None
    raise InvalidRecord("A varint is longer than 5 bytes")


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """A 64-bit zigzag varint: (value, position after it)."""
    try:
        byte = buffer[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        second = buffer[position + 1]
        value = byte & 0x7F | (second & 0x7F) << 7
        if second < 0x80:
            return (value >> 1) ^ -(value & 1), position + 2
        position += 1
        for shift in (14, 21, 28, 35, 42, 49, 56, 63):
            position += 1
            byte = buffer[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= 0xFFFFFFFFFFFFFFFF
                return (value >> 1) ^ -(value & 1), position + 1
    except IndexError:
        raise InvalidRecord("A varlong runs past the end of its buffer") from None
    raise InvalidRecord("A varlong is longer than 10 bytes")


def write_varint(out: bytearray, value: int) -> None:
    """Append `value` (32 or 64 bits: the form is the same) to `out`."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
