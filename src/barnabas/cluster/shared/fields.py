"""Codecs of the fields in messages of the shared store.

int    = i64        flag = u8       text, blob = length u32, bytes (text in UTF-8)
list   = count u32, elements        maybe = flag, element if set
Numbers are big-endian. A reader checks each length against the rest of the frame, so the size of a frame
bounds the memory that a message takes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas.cluster.coordination.contract import (
    Check,
    Create,
    Delete,
    Operation,
    Result,
    SetData,
    Stat,
)

T = TypeVar("T")

_U8 = struct.Struct(">B")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_STAT = struct.Struct(">10q")


class MalformedMessage(Exception):
    """The bytes are not a message of this protocol."""


class Reader:
    """Reads fields from the payload of one frame."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._payload) - self._position

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        if self.left < layout.size:
            raise MalformedMessage("a message ends inside a field")
        found: tuple[int, ...] = layout.unpack_from(self._payload, self._position)
        self._position += layout.size
        return found

    def count(self) -> int:
        """Length of a field, or number of elements of at least one byte each."""
        (count,) = self.numbers(_U32)
        if count > self.left:
            raise MalformedMessage(f"a field of {count} bytes or elements in {self.left} bytes")
        return count

    def blob(self) -> bytes:
        start = self._position + 4
        self._position = start + self.count()
        return self._payload[start : self._position]

    def end(self) -> None:
        if self.left:
            raise MalformedMessage(f"{self.left} bytes behind a message")


class Field(NamedTuple, Generic[T]):
    """Encoder and decoder of a value."""

    put: Callable[[list[bytes], T], None]
    take: Callable[[Reader], T]


def _put_blob(out: list[bytes], value: bytes) -> None:
    out += (_U32.pack(len(value)), value)


def _take_text(reader: Reader) -> str:
    try:
        return reader.blob().decode()
    except UnicodeDecodeError:
        raise MalformedMessage("a text is not UTF-8") from None


def _take_flag(reader: Reader) -> bool:
    (value,) = reader.numbers(_U8)
    if value > 1:
        raise MalformedMessage(f"a flag of {value}")
    return bool(value)


INT: Field[int] = Field(
    lambda out, value: out.append(_I64.pack(value)), lambda reader: reader.numbers(_I64)[0]
)
FLAG: Field[bool] = Field(lambda out, value: out.append(_U8.pack(value)), _take_flag)
BLOB: Field[bytes] = Field(_put_blob, Reader.blob)
TEXT: Field[str] = Field(lambda out, value: _put_blob(out, value.encode()), _take_text)
STAT: Field[Stat] = Field(
    lambda out, value: out.append(_STAT.pack(*value)), lambda reader: Stat(*reader.numbers(_STAT))
)


def listed(element: Field[T]) -> Field[Sequence[T]]:
    def put(out: list[bytes], values: Sequence[T]) -> None:
        out.append(_U32.pack(len(values)))
        for value in values:
            element.put(out, value)

    return Field(put, lambda reader: [element.take(reader) for _ in range(reader.count())])


def maybe(element: Field[T]) -> Field[T | None]:
    def put(out: list[bytes], value: T | None) -> None:
        FLAG.put(out, value is not None)
        if value is not None:
            element.put(out, value)

    return Field(put, lambda reader: element.take(reader) if FLAG.take(reader) else None)


def record(made: Callable[..., T], *fields: Field[Any]) -> Field[T]:
    """A named tuple, field by field."""

    def put(out: list[bytes], value: Any) -> None:
        for field, part in zip(fields, value, strict=True):
            field.put(out, part)

    return Field(put, lambda reader: made(*[field.take(reader) for field in fields]))


def tagged(kinds: Sequence[tuple[int, type, Field[Any]]]) -> Field[Any]:
    """One of several types, after a byte that names it."""
    by_type = {kind: (_U8.pack(tag), field) for tag, kind, field in kinds}
    by_tag = {tag: field for tag, _, field in kinds}

    def put(out: list[bytes], value: Any) -> None:
        tag, field = by_type[type(value)]
        out.append(tag)
        field.put(out, value)

    def take(reader: Reader) -> Any:
        (tag,) = reader.numbers(_U8)
        field = by_tag.get(tag)
        if field is None:
            raise MalformedMessage(f"kind {tag} is unknown")
        return field.take(reader)

    return Field(put, take)


def _nothing(*_: object) -> None:
    """A field of no bytes."""


OPERATION: Field[Operation] = tagged(
    [
        (1, Create, record(Create, TEXT, BLOB, FLAG, FLAG)),
        (2, SetData, record(SetData, TEXT, BLOB, INT)),
        (3, Delete, record(Delete, TEXT, INT)),
        (4, Check, record(Check, TEXT, INT)),
    ]
)
RESULT: Field[Result] = tagged([(0, type(None), Field(_nothing, _nothing)), (1, str, TEXT), (2, Stat, STAT)])
