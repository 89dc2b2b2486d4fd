"""Formats of keys and values in lines: text, JSON, base64, hex, and the numbers of Kafka's serializers.

A format is four functions: bytes to the text of a line and back, bytes to a JSON value and back. What cannot
be converted raises ValueError, which names the problem. `string` is the only format without errors: in JSON,
bytes that are no UTF-8 appear in base64 under another name (`record_lines`).
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

FromBytes = Callable[[bytes], bytes]
ToBytes = Callable[[bytes], bytes]


class Format(NamedTuple):
    name: str
    show: FromBytes
    """Bytes of a record to the text of a line."""
    read: ToBytes
    to_json: Callable[[bytes], Any]
    from_json: Callable[[Any], bytes]


def _same(data: bytes) -> bytes:
    return data


def _text_of(value: Any) -> bytes:
    return (value if isinstance(value, str) else json_text(value)).encode()


def json_text(value: Any, separators: tuple[str, str] | None = None) -> str:
    """JSON with its letters as they are. A lone surrogate has no UTF-8, and stays escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=separators)
    return text


STRING = Format("string", _same, _same, bytes.decode, _text_of)


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{_shown(data)} is not JSON: {error}") from None


def _compact(value: Any) -> bytes:
    return json_text(value, (",", ":")).encode()


def _checked_json(text: bytes) -> bytes:
    """The text as it is, which must be JSON."""
    _parse_json(text)
    return text


JSON = Format("json", lambda data: _compact(_parse_json(data)), _checked_json, _parse_json, _compact)


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"{_shown(text)} is not base64") from None


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode())
    except ValueError:
        raise ValueError(f"{_shown(text)} is not hexadecimal") from None


def _encoded(name: str, show: FromBytes, read: ToBytes) -> Format:
    def from_json(value: Any) -> bytes:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not text in {name}")
        return read(value.encode())

    return Format(name, show, read, lambda data: show(data).decode(), from_json)


class _Number:
    """Big-endian number, as Kafka's serializers write it."""

    def __init__(self, name: str, layout: str, kind: type[int | float]) -> None:
        self._name = name
        self._layout = layout
        self._kind = kind
        self._size = struct.calcsize(layout)

    def format(self) -> Format:
        return Format(
            self._name, lambda data: str(self._unpack(data)).encode(), self.read, self.to_json, self.from_json
        )

    def read(self, text: bytes) -> bytes:
        try:
            number = self._kind(text.decode())
        except (ValueError, UnicodeDecodeError):
            raise ValueError(f"{_shown(text)} is no {self._name}") from None
        return self._pack(number)

    def to_json(self, data: bytes) -> Any:
        number = self._unpack(data)
        return number if math.isfinite(number) else str(number)

    def from_json(self, value: Any) -> bytes:
        if isinstance(value, str):
            return self.read(value.encode())
        if isinstance(value, bool) or not isinstance(value, int | self._kind):
            raise ValueError(f"{value!r} is no {self._name}")
        return self._pack(value)

    def _unpack(self, data: bytes) -> Any:
        if len(data) != self._size:
            raise ValueError(f"{_shown(data)} is no {self._name} of {self._size} bytes")
        return struct.unpack(self._layout, data)[0]

    def _pack(self, number: Any) -> bytes:
        try:
            return struct.pack(self._layout, number)
        except (struct.error, OverflowError):
            raise ValueError(f"{number} does not fit into a {self._name} of {self._size} bytes") from None


def _shown(data: bytes) -> str:
    text = data[:40].decode(errors="backslashreplace")
    return f"{text!r}{'…' if len(data) > 40 else ''}"


FORMATS = {
    each.name: each
    for each in (
        STRING,
        JSON,
        _encoded("base64", base64.b64encode, _from_base64),
        _encoded("hex", lambda data: data.hex().encode(), _from_hex),
        _Number("integer", ">i", int).format(),
        _Number("long", ">q", int).format(),
        _Number("double", ">d", float).format(),
    )
}
