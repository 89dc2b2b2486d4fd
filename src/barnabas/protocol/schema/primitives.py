"""Slow paths of the compiled codecs: rare or long work that is not inlined.

A compiled decoder reads the first byte of a varint itself, together with the fixed-width fields before it.
Nearly every length on the wire is below 128. This module has the rest of varints, and the errors.
"""

from __future__ import annotations

from typing import NoReturn

from barnabas.core.errors import InvalidRequest, UnsupportedVersion
from barnabas.core.limits import STRING_BYTES_MAX, TAGGED_FIELDS_MAX
from barnabas.protocol.errors import LargeMessage, MalformedMessage


def read_unsigned_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """The varint at `position` and the position after it; five bytes at most."""
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise MalformedMessage("a varint has more than five bytes")


def unsigned_varint(value: int) -> bytes:
    """`value` in groups of seven bits, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_tag_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """Number of tagged fields that follow, and the position of the first one."""
    count, position = read_unsigned_varint(buffer, position)
    if count * 2 > len(buffer) - position:  # a tag and a size take a byte each
        reject_length("a section of tagged fields", count, position, len(buffer))
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"{count} tagged fields in one section; at most {TAGGED_FIELDS_MAX} may be")
    return count, position


def skip_tagged_fields(buffer: memoryview, position: int) -> int:
    """End of a section of tagged fields of which none is known. `position` is its start."""
    count, position = read_tag_count(buffer, position)
    return skip_tags(buffer, position, count)


def skip_tags(buffer: memoryview, position: int, count: int) -> int:
    """End of `count` tagged fields, the first of which is at `position`."""
    limit = len(buffer)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        position += size
        if position > limit:
            reject_length("a tagged field", size, position - size, limit)
    return position


def reject_length(what: str, length: int, position: int, limit: int) -> NoReturn:
    """Raise for a length or count above the remaining bytes, or for a null that is not allowed."""
    raise MalformedMessage(
        f"{what} cannot have length {length} at byte {position}: {max(limit - position, 0)} bytes remain"
    )


def defer_elements() -> NoReturn:
    """Raise LargeMessage: the message has more elements than one turn of the loop should decode."""
    raise LargeMessage


def reject_elements(elements: int, elements_max: int) -> NoReturn:
    raise MalformedMessage(f"{elements} elements and more; a request may have {elements_max}")


def reject_null(what: str) -> NoReturn:
    raise MalformedMessage(f"{what} is null, which this version does not allow")


def reject_tag_size(what: str) -> NoReturn:
    raise MalformedMessage(f"{what} does not fill the size that its tag declares")


def refuse_field(what: str, version: int) -> NoReturn:
    """Refuse a value that this version cannot carry, as Kafka does: dropping it would change the meaning."""
    raise UnsupportedVersion(f"version {version} has no {what}, and its value is not the default")


def refuse_string(what: str, length: int) -> NoReturn:
    """Refuse a string that no decoder reads back."""
    raise InvalidRequest(f"{what} has {length} bytes; a string may have {STRING_BYTES_MAX}")


def refuse_value(message: str, version: int, error: Exception) -> NoReturn:
    """Refuse a value outside its field, or text that is not Unicode."""
    raise InvalidRequest(f"{message} cannot be written in version {version}: {error}") from None
