"""The slow paths of the compiled codecs: what is too rare or too long to be inlined.

A compiled decoder reads the first byte of a varint itself, together with the fixed-width
fields before it, because nearly every length on the wire is below 128. Everything else about
varints is here, and so are the complaints.
"""

from __future__ import annotations

from typing import NoReturn

from barnabas.core.errors import UnsupportedVersion
from barnabas.core.limits import TAGGED_FIELDS_MAX
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
    """How many tagged fields follow, and where the first one begins."""
    count, position = read_unsigned_varint(buffer, position)
    if count * 2 > len(buffer) - position:  # a tag and a size take a byte each
        reject_length("a section of tagged fields", count, position, len(buffer))
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"{count} tagged fields in one section; at most {TAGGED_FIELDS_MAX} may be")
    return count, position


def skip_tagged_fields(buffer: memoryview, position: int) -> int:
    """The end of a section of tagged fields of which none is known. `position` is its start."""
    count, position = read_tag_count(buffer, position)
    return skip_tags(buffer, position, count)


def skip_tags(buffer: memoryview, position: int, count: int) -> int:
    """The end of `count` tagged fields, the first of which is at `position`."""
    limit = len(buffer)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        position += size
        if position > limit:
            reject_length("a tagged field", size, position - size, limit)
    return position


def reject_length(what: str, length: int, position: int, limit: int) -> NoReturn:
    """A length or a count that the rest of the buffer cannot hold, or null where it may not be."""
    raise MalformedMessage(
        f"{what} cannot have length {length} at byte {position}: {max(limit - position, 0)} bytes remain"
    )


def defer_elements() -> NoReturn:
    """There is more in a message than one turn of the loop should read."""
    raise LargeMessage


def reject_elements(elements: int, elements_max: int) -> NoReturn:
    raise MalformedMessage(f"{elements} elements and more; a request may have {elements_max}")


def reject_null(what: str) -> NoReturn:
    raise MalformedMessage(f"{what} is null, which this version does not allow")


def reject_tag_size(what: str) -> NoReturn:
    raise MalformedMessage(f"{what} does not fill the size that its tag declares")


def refuse_field(what: str, version: int) -> NoReturn:
    """Kafka's rule: silence would change the meaning, so say that the version cannot carry it."""
    raise UnsupportedVersion(f"version {version} has no {what}, and its value is not the default")
