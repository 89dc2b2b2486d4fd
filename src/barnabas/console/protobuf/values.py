"""Values of Protobuf by their message, as JSON can say them.

Fields have the names of their declaration. 64-bit numbers are numbers, so filters can compare them; bytes are
hexadecimal digits; timestamps, durations and wrappers are what they mean. A field that the message does not
declare shows under its number, `#7`. Scalar fields of proto3 that are missing have their default values.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.console.formats.bounds import VALUE_BYTES_MAX, Budget, Undecodable, plain_float
from barnabas.console.protobuf.model import SCALARS, Enum, Field, Message
from barnabas.console.protobuf.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    GROUP,
    VARINT,
    WireField,
    varint,
    wire_fields,
)

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DEFAULTS: Final[Mapping[str, Any]] = {"bool": False, "string": "", "bytes": ""}
_WIRE: Final = {
    **dict.fromkeys(("double", "fixed64", "sfixed64"), FIXED64),
    **dict.fromkeys(("float", "fixed32", "sfixed32"), FIXED32),
    **dict.fromkeys(("string", "bytes"), BYTES),
}
_FIXED: Final = {
    "double": struct.Struct("<d"), "fixed64": struct.Struct("<Q"), "sfixed64": struct.Struct("<q"),
    "float": struct.Struct("<f"), "fixed32": struct.Struct("<I"), "sfixed32": struct.Struct("<i"),
}  # fmt: skip


def decode_message(data: bytes, message: Message) -> Any:
    """UNDECODABLE if the bytes are not a message, or more than the bounds allow."""
    if len(data) > VALUE_BYTES_MAX:
        raise Undecodable("the value is too large to be decoded")
    return _Decoding().message(memoryview(data), message)


class _Decoding:
    def __init__(self) -> None:
        self._budget = Budget()
        self._with_default: dict[int, list[Field]] = {}
        """By message. A message of many fields may come a hundred thousand times in two bytes each."""

    def message(self, data: memoryview, message: Message) -> Any:
        self._budget.enter()
        self._budget.spend()
        found = dict(self._defaults(message))
        for each in wire_fields(data, self._budget):
            self._take(found, message.fields.get(each.number), each)
        self._budget.leave()
        return _meaning(message.full_name, found)

    def _defaults(self, message: Message) -> list[tuple[str, Any]]:
        fields = self._with_default.get(id(message))
        if fields is None:
            fields = [each for each in message.fields.values() if each.has_default]
            self._with_default[id(message)] = fields
        found: list[tuple[str, Any]] = []
        for each in fields:
            self._budget.spend()
            found.append((each.name, _default(each)))
        return found

    def _take(self, found: dict[str, Any], field: Field | None, wire: WireField) -> None:
        if field is None or not _fits(field, wire):
            found.setdefault(f"#{wire.number}", []).append(_unknown(wire))
            return
        target = field.target
        if isinstance(target, Message) and target.is_map_entry and isinstance(wire.value, memoryview):
            entry = self.message(wire.value, target)
            self._entry(found.setdefault(field.name, {}), entry, target)
        elif _is_packed(field, wire):
            found.setdefault(field.name, []).extend(self._packed(field, wire))
        elif field.is_repeated:
            found.setdefault(field.name, []).append(self._one(field, wire))
        else:
            value, known = self._one(field, wire), found.get(field.name)
            if isinstance(value, dict) and isinstance(known, dict):
                known.update(value)  # parts of one message may come apart
            else:
                found[field.name] = value

    def _entry(self, known: dict[str, Any], entry: Mapping[str, Any], message: Message) -> None:
        key, value = message.fields[1], message.fields[2]
        missing = {} if isinstance(value.target, Message) else _default(value)
        shown = entry.get("key", _DEFAULTS.get(key.type, 0))
        known[str(shown).lower() if isinstance(shown, bool) else str(shown)] = entry.get("value", missing)

    def _one(self, field: Field, wire: WireField) -> Any:
        target = field.target
        if isinstance(target, Message) and isinstance(wire.value, memoryview):
            return self.message(wire.value, target)
        return _scalar(field, wire.value)

    def _packed(self, field: Field, wire: WireField) -> list[Any]:
        assert isinstance(wire.value, memoryview)
        found: list[Any] = []
        at, data = 0, wire.value
        size = _FIXED[field.type].size if field.type in _FIXED else 0
        while at < len(data):
            self._budget.spend()
            if size:
                if at + size > len(data):
                    raise Undecodable("the value does not fit its schema: a list of numbers ends within one")
                found.append(_scalar(field, data[at : at + size]))
                at += size
            else:
                number, at = varint(data, at)
                found.append(_scalar(field, number))
        return found


def _wire_type(field: Field) -> int:
    if isinstance(field.target, Message):
        return BYTES
    return _WIRE.get(field.type, VARINT)


def _fits(field: Field, wire: WireField) -> bool:
    if field.type not in SCALARS and field.target is None:
        return False  # a type that no file declares
    wanted = _wire_type(field)
    if wire.type == wanted or (wire.type == GROUP and isinstance(field.target, Message)):
        return True
    return _is_packed(field, wire)


def _is_packed(field: Field, wire: WireField) -> bool:
    return field.is_repeated and wire.type == BYTES and _wire_type(field) != BYTES


def _default(field: Field) -> Any:
    if isinstance(field.target, Enum):
        return field.target.names.get(0, 0)
    return _DEFAULTS.get(field.type, 0)


def _scalar(field: Field, value: int | memoryview) -> Any:
    if isinstance(value, int):
        if isinstance(field.target, Enum):
            number = _signed(value, 32)
            return field.target.names.get(number, number)
        return _NUMBERS[field.type](value)
    if field.type == "string":
        return str(value, "utf-8", "replace")
    if field.type == "bytes":
        return value.hex()
    found = _FIXED[field.type].unpack(value)[0]
    return plain_float(found) if isinstance(found, float) else found


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


_NUMBERS: Final[Mapping[str, Callable[[int], Any]]] = {
    "int32": lambda value: _signed(value, 32),
    "int64": lambda value: _signed(value, 64),
    "uint32": lambda value: value & 0xFFFFFFFF,
    "uint64": lambda value: value,
    "sint32": lambda value: _signed((value >> 1) ^ -(value & 1), 32),
    "sint64": lambda value: (value >> 1) ^ -(value & 1),
    "bool": bool,
}


def _unknown(wire: WireField) -> Any:
    if isinstance(wire.value, int):
        return wire.value
    if wire.type in (FIXED32, FIXED64):
        return int.from_bytes(wire.value, "little")
    return wire.value.hex()


def _meaning(name: str, found: dict[str, Any]) -> Any:
    """Value of a well-known message, such as a timestamp or a wrapper."""
    if name in WRAPPERS and found.keys() == {"value"}:
        return found["value"]
    if name not in (TIMESTAMP, DURATION) or not found.keys() <= {"seconds", "nanos"}:
        return found
    seconds, nanos = found.get("seconds", 0), found.get("nanos", 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        return found  # the schema declares a message of its own under that name
    return _timestamp(seconds, nanos) or found if name == TIMESTAMP else _duration(seconds, nanos)


def _duration(seconds: int, nanos: int) -> str:
    all_nanos = seconds * 1_000_000_000 + nanos
    sign, whole, rest = "-" if all_nanos < 0 else "", *divmod(abs(all_nanos), 1_000_000_000)
    return f"{sign}{whole}.{rest:09d}".rstrip("0").rstrip(".") + "s"


def _timestamp(seconds: int, nanos: int) -> str | None:
    try:
        at = _EPOCH + dt.timedelta(seconds=seconds)
    except OverflowError:
        return None
    if not 0 <= nanos < 1_000_000_000:
        return None
    rest = f".{nanos:09d}".rstrip("0").rstrip(".")
    return f"{at.replace(tzinfo=None).isoformat()}{rest}Z"
