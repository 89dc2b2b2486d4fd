"""Reader of descriptor sets (`protoc --descriptor_set_out`), by the numbers of `descriptor.proto`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.console.formats.bounds import SCHEMA_DEPTH_MAX, Budget, Undecodable, UnusableSchema
from barnabas.console.protobuf.model import Enum, Field, File, Message
from barnabas.console.protobuf.wire import BYTES, WireField, wire_fields

_TYPES: Final = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool",
    9: "string", 12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
_REPEATED: Final = 3


def parse_descriptor_set(data: bytes) -> list[File]:
    """Files of a set. UNUSABLE_SCHEMA if the bytes are none."""
    try:
        return [_file(each) for number, each in _parts(memoryview(data), Budget()) if number == 1]
    except (Undecodable, UnicodeDecodeError):
        raise UnusableSchema("this is not a descriptor set of Protobuf") from None


def _parts(data: memoryview, budget: Budget) -> Iterator[tuple[int, memoryview]]:
    """Length-delimited fields."""
    for each in wire_fields(data, budget):
        if each.type == BYTES and isinstance(each.value, memoryview):
            yield each.number, each.value


def _file(data: memoryview) -> File:
    budget = Budget()
    parts = list(_parts(data, budget))
    texts = {number: str(each, "utf-8") for number, each in parts if number in (2, 12)}
    found = File(texts.get(2, ""))
    is_implicit = texts.get(12) == "proto3"
    found.imports = [str(each, "utf-8") for number, each in parts if number == 3]
    found.messages = [
        _message(each, found.package, 0, budget, is_implicit=is_implicit)
        for number, each in parts
        if number == 4
    ]
    found.enums = [_enum(each, found.package, budget) for number, each in parts if number == 5]
    return found


def _message(data: memoryview, scope: str, depth: int, budget: Budget, *, is_implicit: bool) -> Message:
    if depth > SCHEMA_DEPTH_MAX:
        raise UnusableSchema(f"the schema is nested more than {SCHEMA_DEPTH_MAX} levels deep")
    parts = list(_parts(data, budget))
    own = next((str(each, "utf-8") for number, each in parts if number == 1), "")
    found = Message(f"{scope}.{own}" if scope else own)
    for number, each in parts:
        if number == 2:
            made = _field(each, budget, is_implicit=is_implicit)
            found.fields[made.number] = made
        elif number == 3:
            found.messages.append(_message(each, found.full_name, depth + 1, budget, is_implicit=is_implicit))
        elif number == 4:
            found.enums.append(_enum(each, found.full_name, budget))
        elif number == 7:
            found.is_map_entry = any(
                option.number == 7 and option.value == 1 for option in wire_fields(each, budget)
            )
    found.is_map_entry = found.is_map_entry and found.fields.keys() >= {1, 2}
    return found


def _field(data: memoryview, budget: Budget, *, is_implicit: bool) -> Field:
    by_number: dict[int, WireField] = {each.number: each for each in wire_fields(data, budget)}

    def number(of: int) -> int:
        found = by_number.get(of)
        return found.value if found is not None and isinstance(found.value, int) else 0

    def text(of: int) -> str:
        found = by_number.get(of)
        return "" if found is None or isinstance(found.value, int) else str(found.value, "utf-8")

    kind = _TYPES.get(number(5))
    is_explicit = not is_implicit or 9 in by_number  # 9: the place of a oneof
    return Field(
        text(1), number(3), kind or text(6), is_repeated=number(4) == _REPEATED, has_presence=is_explicit
    )


def _enum(data: memoryview, scope: str, budget: Budget) -> Enum:
    parts = list(_parts(data, budget))
    own = next((str(each, "utf-8") for number, each in parts if number == 1), "")
    found = Enum(f"{scope}.{own}" if scope else own)
    for number, each in parts:
        if number == 2:
            fields = {part.number: part.value for part in wire_fields(each, budget)}
            name, value = fields.get(1), fields.get(2, 0)
            if isinstance(name, memoryview) and isinstance(value, int):
                signed = value - (1 << 64) if value >= 1 << 63 else value
                found.names.setdefault(signed, str(name, "utf-8"))
    return found
