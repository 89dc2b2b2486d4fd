"""Protobuf's wire format: fields one by one, and all of them as text when no schema is known.

The text is that of Protoscope with explicit wire types: `1:VARINT 150`, `2:LEN {"text"}`, `3:LEN { … }` for
bytes that read as a message, digits between backquotes for other bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.console.formats.bounds import VALUE_BYTES_MAX, Budget, Undecodable

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = 0, 1, 2, 3, 4, 5
VARINT_BYTES_MAX: Final = 10
NUMBER_MAX: Final = (1 << 29) - 1
LINES_MAX: Final = 20_000
HEX_BYTES_MAX: Final = 64 * 1024
NAMES: Final = {VARINT: "VARINT", FIXED64: "I64", BYTES: "LEN", GROUP: "SGROUP", FIXED32: "I32"}
_SIZES: Final = {FIXED64: 8, FIXED32: 4}
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class WireField(NamedTuple):
    number: int
    type: int
    value: int | memoryview
    """A varint, the bytes of a fixed or length-delimited field, or those between the tags of a group."""


def wire_fields(data: memoryview, budget: Budget) -> Iterator[WireField]:
    """Fields of a message. UNDECODABLE as soon as one is malformed."""
    at = 0
    while at < len(data):
        budget.spend()
        number, kind, at = _tag(data, at)
        if kind == GROUP:
            end, after = _group_end(data, at, number, budget)
            yield WireField(number, GROUP, data[at:end])
            at = after
        else:
            value, at = _value(data, at, kind)
            yield WireField(number, kind, value)


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at a position, and the position behind it."""
    found = shift = 0
    for byte in data[at : at + VARINT_BYTES_MAX]:
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Undecodable("the bytes are not Protobuf: they end within a number")


def _tag(data: memoryview, at: int) -> tuple[int, int, int]:
    key, at = varint(data, at)
    number, kind = key >> 3, key & 7
    if not 1 <= number <= NUMBER_MAX:
        raise Undecodable(f"the bytes are not Protobuf: there is no field {number}")
    return number, kind, at


def _value(data: memoryview, at: int, kind: int) -> tuple[int | memoryview, int]:
    if kind == VARINT:
        return varint(data, at)
    if kind == BYTES:
        size, at = varint(data, at)
    elif kind in _SIZES:
        size = _SIZES[kind]
    else:
        raise Undecodable("the bytes are not Protobuf: a field has no wire type")
    if size > len(data) - at:
        raise Undecodable("the bytes are not Protobuf: they end within a field")
    return data[at : at + size], at + size


def _group_end(data: memoryview, at: int, number: int, budget: Budget) -> tuple[int, int]:
    """Ends of a group's content and of its end tag."""
    open_groups = [number]
    while at < len(data):
        budget.spend()
        start = at
        found, kind, at = _tag(data, at)
        if kind == GROUP:
            open_groups.append(found)
        elif kind == GROUP_END:
            if open_groups.pop() != found:
                break
            if not open_groups:
                return start, at
        else:
            _, at = _value(data, at, kind)
    raise Undecodable("the bytes are not Protobuf: a group does not end")


# --- text ---


def protoscope(data: bytes) -> str:
    """All fields as text. UNDECODABLE if the bytes are not a message."""
    if len(data) > VALUE_BYTES_MAX:
        raise Undecodable("the value is too large to be decoded")
    if not data:
        raise Undecodable("there are no bytes")
    return "\n".join(_Text().lines(memoryview(data)))


class _Text:
    def __init__(self) -> None:
        self._budget = Budget()
        self._lines_left = LINES_MAX

    def lines(self, data: memoryview, indent: str = "") -> list[str]:
        found: list[str] = []
        for each in wire_fields(data, self._budget):
            self._lines_left -= 1
            if self._lines_left < 0:
                raise Undecodable(f"the value has more than {LINES_MAX:,} fields")
            found += self._field(each, indent)
        return found

    def _field(self, field: WireField, indent: str) -> list[str]:
        head = f"{indent}{field.number}:{NAMES[field.type]} "
        if isinstance(field.value, int):
            return [head + str(field.value)]
        if field.type in (FIXED32, FIXED64):
            as_float = _FLOAT if field.type == FIXED32 else _DOUBLE
            number = int.from_bytes(field.value, "little")
            return [f"{head}{number}  # {as_float.unpack(field.value)[0]!r}"]
        if field.type == GROUP:
            return self._nested(head, field.value, indent)
        text = _text_of(field.value)
        if text is not None:
            return [f"{head}{{{json.dumps(text, ensure_ascii=False)}}}"]
        return self._message_or_bytes(head, field.value, indent)

    def _message_or_bytes(self, head: str, value: memoryview, indent: str) -> list[str]:
        left = self._lines_left
        try:
            return self._nested(head, value, indent)
        except Undecodable:
            if self._lines_left < 0 or self._budget.values_left < 0:
                raise
            self._lines_left = left
        cut = " …" if len(value) > HEX_BYTES_MAX else ""
        return [f"{head}{{`{value[:HEX_BYTES_MAX].hex()}`{cut}}}"]

    def _nested(self, head: str, value: memoryview, indent: str) -> list[str]:
        self._budget.enter()
        try:
            return [f"{head}{{", *self.lines(value, indent + "  "), f"{indent}}}"]
        finally:
            self._budget.leave()


def _text_of(value: memoryview) -> str | None:
    """The bytes as a text that people could have written; None if they are none."""
    try:
        text = str(value, "utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\t" for each in text) else None
