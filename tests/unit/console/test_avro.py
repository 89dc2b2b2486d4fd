"""Avro by our own reader: the same values as fastavro, and bounds on what a schema and a value can become."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.formats.avro import AvroSchema
from barnabas.console.formats.bounds import (
    DEPTH_MAX,
    NAME_CHARACTERS_MAX,
    NAME_PARTS_MAX,
    SCHEMA_DEPTH_MAX,
    Undecodable,
    UnusableSchema,
)

TREE = {
    "type": "record",
    "name": "Tree",
    "namespace": "test",
    "fields": [
        {"name": "label", "type": "string"},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "kind", "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["LEAF", "NODE"]}]},
        {"name": "weights", "type": {"type": "map", "values": "double"}},
    ],
}
LEAF = {"label": "leaf", "children": [], "kind": "LEAF", "weights": {"a": 0.5}}
CHAIN = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
MILLION = b"\x80\x89\x7a\x00"
"""A block of a million items, and the end."""


def doubling(links: int) -> dict[str, Any]:
    """Records of two records each: 2**links of them, in no byte."""
    inner: dict[str, Any] = {"type": "record", "name": "r0", "fields": [{"name": "x", "type": "null"}]}
    for link in range(1, links + 1):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"r{link - 1}"}]
        inner = {"type": "record", "name": f"r{link}", "fields": fields}
    return inner


def decoded(schema: object, data: bytes, *references: object) -> Any:
    return AvroSchema(json.dumps(schema), [json.dumps(each) for each in references]).decode(data)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_a_value_of_a_recursive_schema_is_decoded() -> None:
    tree = {**LEAF, "label": "root", "children": [LEAF] * 1_000}
    assert decoded(TREE, written(TREE, tree)) == tree


def test_every_type_is_decoded() -> None:
    types: dict[str, tuple[Any, Any, Any]] = {
        "a": ("null", None, None),
        "b": ("boolean", True, True),
        "c": ("int", -7, -7),
        "d": ("long", 2**60, 2**60),
        "e": ("float", 0.5, 0.5),
        "f": ("double", -0.25, -0.25),
        "g": ("bytes", b"\x00\xff", "00ff"),
        "h": ("string", "é", "é"),
        "i": ({"type": "fixed", "name": "F", "size": 2}, b"ab", "6162"),
        "j": (["null", "string", "long"], 5, 5),
        "k": ({"type": "int", "logicalType": "date"}, dt.date(2026, 11, 18), "2026-11-18"),
        "l": (
            {"type": "long", "logicalType": "timestamp-millis"},
            dt.datetime(2026, 11, 18, 9, tzinfo=dt.UTC),
            "2026-11-18T09:00:00+00:00",
        ),
        "m": ({"type": "long", "logicalType": "time-micros"}, dt.time(1, 2, 3, 4), "01:02:03.000004"),
        "n": (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-1.50"),
            "-1.50",
        ),
        "o": (
            {"type": "string", "logicalType": "uuid"},
            uuid.UUID(int=5),
            "00000000-0000-0000-0000-000000000005",
        ),
        "p": (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            dt.datetime(2026, 11, 18, 9),  # noqa: DTZ001 - a local time has no zone
            "2026-11-18T09:00:00",
        ),
    }
    schema = {
        "type": "record",
        "name": "All",
        "fields": [{"name": name, "type": kind} for name, (kind, _, _) in types.items()],
    }
    data = written(schema, {name: value for name, (_, value, _) in types.items()})
    assert decoded(schema, data) == {name: shown for name, (_, _, shown) in types.items()}


@given(st.recursive(st.integers(-5, 5) | st.text(max_size=5), lambda inner: st.lists(inner, max_size=4)))
def test_what_another_library_writes_is_read(value: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": [
        "long", "string", {"type": "array", "items": {"type": "record", "name": "I", "fields": [
            {"name": "v", "type": ["long", "string", {"type": "array", "items": "I"}]}]}},
    ]}]}  # fmt: skip

    def shaped(each: Any) -> Any:
        return {"v": [shaped(item) for item in each] if isinstance(each, list) else each}

    assert decoded(schema, written(schema, shaped(value))) == shaped(value)


def test_names_of_other_schemas_are_known() -> None:
    customer = {"type": "record", "name": "shop.Customer", "fields": [{"name": "id", "type": "int"}]}
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "buyer", "type": "Customer"}, {"name": "payer", "type": "shop.Customer"}],
    }
    assert decoded(order, b"\x02\x04", customer) == {"buyer": {"id": 1}, "payer": {"id": 2}}
    assert decoded(["null", "shop.Customer"], b"\x02\x02", customer) == {"id": 1}
    with pytest.raises(UnusableSchema, match=r"shop\.Customer is not defined"):
        decoded(order, b"\x02\x04")


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 100_000, 3_000_000])
def test_a_value_that_nests_deeply_is_refused(depth: int) -> None:
    """A library that decodes it by recursion in C ends the process."""
    with pytest.raises(Undecodable, match="levels deep"):
        decoded(CHAIN, b"\x02" * depth + b"\x00")


@pytest.mark.parametrize("items", ["null", {"type": "fixed", "name": "f", "size": 0}, doubling(2)])
def test_items_without_bytes_are_bounded(items: object) -> None:
    with pytest.raises(Undecodable, match="parts"):
        decoded({"type": "array", "items": items}, MILLION)


def test_records_that_double_are_bounded() -> None:
    with pytest.raises(Undecodable, match="parts"):
        decoded(doubling(22), b"")


def test_a_record_of_itself_is_refused() -> None:
    endless = {"type": "record", "name": "E", "fields": [{"name": "e", "type": "E"}]}
    with pytest.raises(Undecodable, match="levels deep"):
        decoded(endless, b"")


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("string", b"\x10ab"),
        ("string", b"\x01"),
        ("long", b"\xff" * 11),
        ("long", b""),
        ("boolean", b"\x05"),
        ("int", b"\x02\x02"),
        ("string", b"\x04\xff\xfe"),
        (["null", "int"], b"\x08"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        ({"type": "fixed", "name": "F", "size": 2**40}, b"x"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(schema: object, data: bytes) -> None:
    with pytest.raises(Undecodable):
        decoded(schema, data)


def nested(depth: int) -> Any:
    found: Any = "null"
    for _ in range(depth):
        found = {"type": "array", "items": found}
    return found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        '{"type":' * 5_000 + '"int"' + "}" * 5_000,
        json.dumps(nested(SCHEMA_DEPTH_MAX + 1)),
        "null",
        "7",
        '"Missing"',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": [{"type": "int"}]}',
        '{"type": "record", "fields": []}',
        '{"type": "enum", "name": "E", "symbols": [1]}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "fixed", "name": "F", "size": true}',
        '{"type": {"type": {"type": 3}}}',
        '{"type": "bytes", "logicalType": "decimal", "scale": 1e9}',
        '{"type": "bytes", "logicalType": ["decimal"]',
        '{"type": "record", "name": ["R"], "fields": []}',
        '"' + "x" * (2 << 20) + '"',
        json.dumps({"type": "fixed", "name": "F", "namespace": "n" * NAME_CHARACTERS_MAX, "size": 1}),
        json.dumps({"type": "enum", "name": "n" * (NAME_CHARACTERS_MAX + 1), "symbols": []}),
        json.dumps({**CHAIN, "namespace": ".".join("n" * NAME_PARTS_MAX)}),
    ],
)
def test_schemas_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(UnusableSchema):
        AvroSchema(text)


def test_a_name_that_is_used_is_bounded_with_its_namespace() -> None:
    """Two characters in the schema; half a megabyte in memory, if its namespace had that."""
    fields = [{"name": "f", "type": ["x1", "x2"]}]
    with pytest.raises(UnusableSchema, match="characters"):
        AvroSchema(
            json.dumps({"type": "record", "name": f"{'n' * 510}.R", "namespace": "", "fields": fields})
        )


def test_an_enum_of_many_symbols_is_a_schema() -> None:
    symbols = [f"S{number}" for number in range(80_000)]
    assert decoded({"type": "enum", "name": "E", "symbols": symbols}, b"\x02") == "S1"


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for schema in (TREE, CHAIN, doubling(3), {"type": "map", "values": ["null", "string", "double"]}):
        try:
            json.dumps(decoded(schema, data), allow_nan=False)
        except Undecodable:
            """Most bytes are no value."""
