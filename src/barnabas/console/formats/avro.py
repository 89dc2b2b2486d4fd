"""Avro: schemas become readers, and a reader turns bytes into what JSON can say.

The reader is written here because the usual libraries decode a value of a recursive schema by recursion in C:
a few hundred kilobytes end the process. This one counts levels and values (`bounds`).

Dates, times, decimals and UUIDs become text; bytes become hexadecimal digits. The value of a union is that of
its branch. Names are resolved as the specification says, also those that other schemas of a registry define.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

from barnabas.console.formats.bounds import (
    SCHEMA_CHARACTERS_MAX,
    SCHEMA_DEPTH_MAX,
    Budget,
    Undecodable,
    UnusableSchema,
    bounded_name,
    plain_float,
)

DECIMAL_BYTES_MAX: Final = 64
VARINT_BYTES_MAX: Final = 10
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UUID_BYTES: Final = 16


class _Cursor:
    __slots__ = ("at", "budget", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.budget = Budget()

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise Undecodable("the value ends within a part of it")
        found = self.data[self.at : end]
        self.at = end
        return found

    def long(self) -> int:
        found = shift = 0
        for byte in self.data[self.at : self.at + VARINT_BYTES_MAX]:
            self.at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
        raise Undecodable("the value ends within a number")


Reader: TypeAlias = Callable[[_Cursor], Any]


class AvroSchema:
    """A schema that decodes values."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """`references` are texts of the schemas whose names this one uses, each after those that it uses.
        UNUSABLE_SCHEMA says what is wrong.
        """
        names = _Names()
        for each in references:
            names.reader(_loads(each), "", 0)
        self._read = names.reader(_loads(text), "", 0)
        names.check()

    def decode(self, data: bytes) -> Any:
        cursor = _Cursor(data)
        found = self._read(cursor)
        if cursor.at != len(data):
            raise Undecodable(f"the value does not fit its schema: {len(data) - cursor.at:,} bytes are left")
        return found


def _loads(text: str) -> Any:
    if len(text) > SCHEMA_CHARACTERS_MAX:
        raise UnusableSchema("the schema is too large")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnusableSchema("the schema is not JSON") from None


class _Names:
    """Readers of the types that have names."""

    def __init__(self) -> None:
        self._known: dict[str, Reader] = {}
        self._wanted: set[str] = set()

    def check(self) -> None:
        missing = sorted(self._wanted - self._known.keys())
        if missing:
            raise UnusableSchema(f"the type {missing[0][:100]} is not defined")

    def reader(self, schema: Any, namespace: str, depth: int) -> Reader:
        if depth > SCHEMA_DEPTH_MAX:
            raise UnusableSchema(f"the schema is nested more than {SCHEMA_DEPTH_MAX} levels deep")
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._named(schema, namespace)
        if isinstance(schema, list):
            return _union([self.reader(each, namespace, depth + 1) for each in schema])
        if not isinstance(schema, dict):
            raise UnusableSchema("a type is a name, a list or an object")
        return self._complex(schema, namespace, depth)

    def _complex(self, schema: Mapping[str, Any], namespace: str, depth: int) -> Reader:
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.reader(kind, namespace, depth + 1)
        match kind:
            case "record" | "error":
                return self._record(schema, namespace, depth)
            case "enum":
                made = _enum(_texts(schema, "symbols"))
            case "fixed":
                made = _fixed(schema)
            case "array":
                return _array(self.reader(schema.get("items"), namespace, depth + 1))
            case "map":
                return _map(self.reader(schema.get("values"), namespace, depth + 1))
            case _:
                logical = schema.get("logicalType")
                found = _LOGICAL.get((kind, logical)) if isinstance(logical, str) else None
                return self.reader(kind, namespace, depth + 1) if found is None else found(schema)
        self._known[_full_name(schema, namespace)[0]] = made
        return made

    def _named(self, name: str, namespace: str) -> Reader:
        full = bounded_name(name if "." in name or not namespace else f"{namespace}.{name}")
        if full not in self._known and name in self._known:
            full = name
        self._wanted.add(full)
        known = self._known

        def read(cursor: _Cursor) -> Any:
            return known[full](cursor)

        return read

    def _record(self, schema: Mapping[str, Any], namespace: str, depth: int) -> Reader:
        full, inner = _full_name(schema, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise UnusableSchema(f"the record {full[:100]} has no fields")
        parts: list[tuple[str, Reader]] = []

        def read(cursor: _Cursor) -> dict[str, Any]:
            cursor.budget.enter()
            cursor.budget.spend()
            found = {name: part(cursor) for name, part in parts}
            cursor.budget.leave()
            return found

        self._known[full] = read
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise UnusableSchema(f"a field of the record {full[:100]} has no name")
            parts.append((each["name"], self.reader(each.get("type"), inner, depth + 1)))
        return read


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Name with its namespace, and the namespace of the names within."""
    name, own = schema.get("name"), schema.get("namespace", namespace)
    if not isinstance(name, str) or not name or not isinstance(own, str | None):
        raise UnusableSchema("a type has no name")
    if "." in name:
        return bounded_name(name), name.rpartition(".")[0]
    return (bounded_name(f"{own}.{name}"), own) if own else (bounded_name(name), "")


def _texts(schema: Mapping[str, Any], key: str) -> list[str]:
    found = schema.get(key)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UnusableSchema(f"an enum has no {key}")
    return found


# --- readers ---


def _null(cursor: _Cursor) -> None:
    cursor.budget.spend()


def _boolean(cursor: _Cursor) -> bool:
    cursor.budget.spend()
    found = cursor.take(1)[0]
    if found > 1:
        raise Undecodable("the value does not fit its schema: a boolean is 0 or 1")
    return bool(found)


def _long(cursor: _Cursor) -> int:
    cursor.budget.spend()
    return cursor.long()


def _float(cursor: _Cursor) -> float | str:
    cursor.budget.spend()
    return plain_float(_FLOAT.unpack(cursor.take(4))[0])


def _double(cursor: _Cursor) -> float | str:
    cursor.budget.spend()
    return plain_float(_DOUBLE.unpack(cursor.take(8))[0])


def _raw(cursor: _Cursor) -> bytes:
    cursor.budget.spend()
    return cursor.take(cursor.long())


def _bytes(cursor: _Cursor) -> str:
    return _raw(cursor).hex()


def _string(cursor: _Cursor) -> str:
    try:
        return _raw(cursor).decode()
    except UnicodeDecodeError:
        raise Undecodable("the value does not fit its schema: a string is not UTF-8") from None


_PRIMITIVES: Final[Mapping[str, Reader]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _union(branches: list[Reader]) -> Reader:
    def read(cursor: _Cursor) -> Any:
        index = cursor.long()
        if not 0 <= index < len(branches):
            raise Undecodable(f"the value does not fit its schema: a union has no branch {index}")
        return branches[index](cursor)

    return read


def _enum(symbols: list[str]) -> Reader:
    def read(cursor: _Cursor) -> str:
        index = _long(cursor)
        if not 0 <= index < len(symbols):
            raise Undecodable(f"the value does not fit its schema: an enum has no symbol {index}")
        return symbols[index]

    return read


def _fixed(schema: Mapping[str, Any]) -> Reader:
    size = schema.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise UnusableSchema("a fixed type has no size")
    if schema.get("logicalType") == "decimal":
        return _decimal(schema, lambda cursor: _fixed_bytes(cursor, size))
    is_uuid = schema.get("logicalType") == "uuid" and size == _UUID_BYTES

    def read(cursor: _Cursor) -> str:
        found = _fixed_bytes(cursor, size)
        return str(uuid.UUID(bytes=found)) if is_uuid else found.hex()

    return read


def _fixed_bytes(cursor: _Cursor, size: int) -> bytes:
    cursor.budget.spend()
    return cursor.take(size)


def _counts(cursor: _Cursor) -> Iterator[int]:
    """Items of each block."""
    while count := cursor.long():
        if count < 0:
            cursor.long()  # bytes of the block
            count = -count
        yield count


def _array(item: Reader) -> Reader:
    def read(cursor: _Cursor) -> list[Any]:
        cursor.budget.enter()
        cursor.budget.spend()
        found: list[Any] = []
        for count in _counts(cursor):
            for _ in range(count):
                cursor.budget.spend()  # an item may take no byte and make no value
                found.append(item(cursor))
        cursor.budget.leave()
        return found

    return read


def _map(value: Reader) -> Reader:
    def read(cursor: _Cursor) -> dict[str, Any]:
        cursor.budget.enter()
        cursor.budget.spend()
        found: dict[str, Any] = {}
        for count in _counts(cursor):
            for _ in range(count):
                name = _string(cursor)
                found[name] = value(cursor)
        cursor.budget.leave()
        return found

    return read


def _decimal(schema: Mapping[str, Any], raw: Callable[[_Cursor], bytes]) -> Reader:
    scale = schema.get("scale", 0)
    if isinstance(scale, bool) or not isinstance(scale, int) or not 0 <= scale <= 1_000:
        raise UnusableSchema("a decimal has no scale")

    def read(cursor: _Cursor) -> str:
        found = raw(cursor)
        if len(found) > DECIMAL_BYTES_MAX:
            return found.hex()
        number = int.from_bytes(found, "big", signed=True)
        return str(Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))

    return read


def _since(per_second: int, *, is_local: bool) -> Reader:
    def read(cursor: _Cursor) -> str | int:
        number = _long(cursor)
        try:
            found = _EPOCH + dt.timedelta(microseconds=number * 1_000_000 // per_second)
        except OverflowError:
            return number
        return (found.replace(tzinfo=None) if is_local else found).isoformat()

    return read


def _date(cursor: _Cursor) -> str | int:
    days = _long(cursor)
    try:
        return (_EPOCH + dt.timedelta(days=days)).date().isoformat()
    except OverflowError:
        return days


def _time(per_second: int) -> Reader:
    def read(cursor: _Cursor) -> str | int:
        number = _long(cursor)
        if not 0 <= number < 86_400 * per_second:
            return number
        return (_EPOCH + dt.timedelta(microseconds=number * 1_000_000 // per_second)).time().isoformat()

    return read


_MILLIS, _MICROS, _NANOS = 1_000, 1_000_000, 1_000_000_000
_LOGICAL: Final[Mapping[tuple[str, Any], Callable[[Mapping[str, Any]], Reader]]] = {
    ("int", "date"): lambda _: _date,
    ("int", "time-millis"): lambda _: _time(_MILLIS),
    ("long", "time-micros"): lambda _: _time(_MICROS),
    ("long", "timestamp-millis"): lambda _: _since(_MILLIS, is_local=False),
    ("long", "timestamp-micros"): lambda _: _since(_MICROS, is_local=False),
    ("long", "timestamp-nanos"): lambda _: _since(_NANOS, is_local=False),
    ("long", "local-timestamp-millis"): lambda _: _since(_MILLIS, is_local=True),
    ("long", "local-timestamp-micros"): lambda _: _since(_MICROS, is_local=True),
    ("long", "local-timestamp-nanos"): lambda _: _since(_NANOS, is_local=True),
    ("bytes", "decimal"): lambda schema: _decimal(schema, _raw),
}
