"""MessagePack, CBOR, and the numbers and UUIDs of Kafka's own serializers, as what JSON can say.

A value counts what it makes (`bounds`): six bytes may say that four billion nulls follow. Bytes become
hexadecimal digits. A key of a map becomes text, because JSON has no other. A list or a map as a key becomes
the beginning of its JSON: the text of a key within a key within a key doubles at each level.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from barnabas.console.formats.bounds import VALUE_BYTES_MAX, Budget, Undecodable, plain_float
from barnabas.console.formats.json_text import json_text

UUID_BYTES: Final = 16
KEY_CHARACTERS_MAX: Final = 200
"""Of a key that is a list or a map."""
_NUMBERS: Final = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
_BREAK: Final = object()
_INDEFINITE: Final = 31


class _Reader:
    def __init__(self, data: bytes) -> None:
        if len(data) > VALUE_BYTES_MAX:
            raise Undecodable(f"the value has more than {VALUE_BYTES_MAX >> 20} MiB")
        self.data = data
        self.at = 0
        self.budget = Budget()

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise Undecodable("the value ends within a part of it")
        found = self.data[self.at : end]
        self.at = end
        return found

    def unsigned(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def signed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def real(self, form: str) -> float | str:
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return plain_float(found)

    def text(self, size: int) -> str:
        return self.take(size).decode("utf-8", "replace")

    def items(self, count: int, read: Callable[[_Reader], Any]) -> list[Any]:
        self.budget.enter()
        found = [read(self) for _ in range(self._at_most_what_follows(count))]
        self.budget.leave()
        return found

    def pairs(self, count: int, read: Callable[[_Reader], Any]) -> dict[str, Any]:
        self.budget.enter()
        found: dict[str, Any] = {}
        for _ in range(self._at_most_what_follows(count)):
            key = _as_key(read(self))
            found[key] = read(self)
        self.budget.leave()
        return found

    def _at_most_what_follows(self, count: int) -> int:
        """Each item has a byte at least, so a count beyond the bytes is a lie."""
        if count > len(self.data) - self.at:
            raise Undecodable("the value ends within a part of it")
        return count


def _whole(data: bytes, read: Callable[[_Reader], Any]) -> Any:
    reader = _Reader(data)
    found = read(reader)
    if reader.at < len(data):
        raise Undecodable(f"{len(data) - reader.at:,} bytes follow the value")
    return found


def _as_key(found: Any) -> str:
    if isinstance(found, dict | list):
        return json_text(found, KEY_CHARACTERS_MAX, default=str)[:KEY_CHARACTERS_MAX]
    return found if isinstance(found, str) else str(found)


# --- MessagePack ---


def read_message_pack(data: bytes) -> Any:
    try:
        return _whole(data, _packed)
    except Undecodable as error:
        raise Undecodable(f"the bytes are not MessagePack: {error}") from None


def _packed(reader: _Reader) -> Any:  # noqa: C901, PLR0911, PLR0912 - a case for each kind of value
    reader.budget.spend()
    kind = reader.unsigned(1)
    if kind < 0x80:
        return kind
    if kind >= 0xE0:
        return kind - 0x100
    if kind < 0x90:
        return reader.pairs(kind & 0x0F, _packed)
    if kind < 0xA0:
        return reader.items(kind & 0x0F, _packed)
    if kind < 0xC0:
        return reader.text(kind & 0x1F)
    match kind:
        case 0xC0:
            return None
        case 0xC2 | 0xC3:
            return kind == 0xC3
        case 0xC4 | 0xC5 | 0xC6:
            return reader.take(reader.unsigned(1 << (kind - 0xC4))).hex()
        case 0xC7 | 0xC8 | 0xC9:
            return _extension(reader, reader.unsigned(1 << (kind - 0xC7)))
        case 0xCA:
            return reader.real(">f")
        case 0xCB:
            return reader.real(">d")
        case 0xCC | 0xCD | 0xCE | 0xCF:
            return reader.unsigned(1 << (kind - 0xCC))
        case 0xD0 | 0xD1 | 0xD2 | 0xD3:
            return reader.signed(1 << (kind - 0xD0))
        case 0xD4 | 0xD5 | 0xD6 | 0xD7 | 0xD8:
            return _extension(reader, 1 << (kind - 0xD4))
        case 0xD9 | 0xDA | 0xDB:
            return reader.text(reader.unsigned(1 << (kind - 0xD9)))
        case 0xDC | 0xDD:
            return reader.items(reader.unsigned(2 << (kind - 0xDC)), _packed)
        case 0xDE | 0xDF:
            return reader.pairs(reader.unsigned(2 << (kind - 0xDE)), _packed)
    raise Undecodable("no value begins with the byte c1")


def _extension(reader: _Reader, size: int) -> dict[str, Any]:
    return {"extension": reader.signed(1), "bytes": reader.take(size).hex()}


# --- CBOR ---


def read_cbor(data: bytes) -> Any:
    try:
        found = _whole(data, _cbor)
    except Undecodable as error:
        raise Undecodable(f"the bytes are not CBOR: {error}") from None
    if found is _BREAK:
        raise Undecodable("the bytes are not CBOR: a break without a begin")
    return found


def _cbor(reader: _Reader) -> Any:  # noqa: PLR0911 - a case for each kind of value
    reader.budget.spend()
    first = reader.unsigned(1)
    kind, short = first >> 5, first & 0x1F
    if kind == 7:
        return _simple(reader, short)
    if short == _INDEFINITE:
        return _indefinite(reader, kind)
    count = _argument(reader, short)
    match kind:
        case 0:
            return count
        case 1:
            return -1 - count
        case 2:
            return reader.take(count).hex()
        case 3:
            return reader.text(count)
        case 4:
            return _no_breaks(reader.items(count, _cbor))
        case 5:
            return reader.pairs(count, _inside)
    return _tagged(reader, count)


def _argument(reader: _Reader, short: int) -> int:
    if short < 24:
        return short
    if short > 27:
        raise Undecodable(f"no length is {short}")
    return reader.unsigned(1 << (short - 24))


def _simple(reader: _Reader, short: int) -> Any:  # noqa: PLR0911 - a case for each kind of value
    match short:
        case 20 | 21:
            return short == 21
        case 22 | 23:
            return None
        case 24:
            return f"simple({reader.unsigned(1)})"
        case 25:
            return reader.real(">e")
        case 26:
            return reader.real(">f")
        case 27:
            return reader.real(">d")
        case 31:
            return _BREAK
    if short < 20:
        return f"simple({short})"
    raise Undecodable(f"no simple value is {short}")


def _indefinite(reader: _Reader, kind: int) -> Any:
    if kind not in (2, 3, 4, 5):
        raise Undecodable("only texts, bytes, lists and maps have an open end")
    reader.budget.enter()
    found: list[Any] = []
    while (each := _cbor(reader)) is not _BREAK:
        found.append(each)
    reader.budget.leave()
    if kind == 4:
        return found
    if kind == 5:
        if len(found) % 2:
            raise Undecodable("a map has a key without a value")
        return {_as_key(key): value for key, value in zip(found[::2], found[1::2], strict=True)}
    if not all(isinstance(each, str) for each in found):
        raise Undecodable("a text is made of texts")
    return "".join(found)


def _tagged(reader: _Reader, tag: int) -> Any:
    reader.budget.enter()
    found = _inside(reader)
    reader.budget.leave()
    if tag in (2, 3) and isinstance(found, str):
        return {"tag": tag, "bytes": found}
    return found if tag in _PLAIN_TAGS else {"tag": tag, "value": found}


_PLAIN_TAGS: Final = frozenset({0, 1, 21, 22, 23, 24, 32, 33, 34, 35, 36, 55799})
"""Tags that say how a text or a number is meant; the value says it too."""


def _inside(reader: _Reader) -> Any:
    found = _cbor(reader)
    if found is _BREAK:
        raise Undecodable("a break without a begin")
    return found


def _no_breaks(found: list[Any]) -> list[Any]:
    if any(each is _BREAK for each in found):
        raise Undecodable("a break without a begin")
    return found


# --- Kafka's serializers ---


def read_integer(data: bytes) -> int:
    """ShortSerializer, IntegerSerializer, LongSerializer."""
    form = _NUMBERS.get(len(data))
    if form is None:
        raise Undecodable("an integer has 1, 2, 4 or 8 bytes")
    (found,) = struct.unpack(form, data)
    return int(found)


def read_float(data: bytes) -> float | str:
    """FloatSerializer, DoubleSerializer."""
    form = {4: ">f", 8: ">d"}.get(len(data))
    if form is None:
        raise Undecodable("a float has 4 or 8 bytes")
    (found,) = struct.unpack(form, data)
    return plain_float(found)


def read_uuid(data: bytes) -> str:
    if len(data) != UUID_BYTES:
        raise Undecodable("a UUID has 16 bytes")
    return str(uuid.UUID(bytes=data))
