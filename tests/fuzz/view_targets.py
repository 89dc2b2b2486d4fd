"""Readers of what viewers look at: schemas and values in the console, filters, masks and forms, metrics that
clients push, questions of the inspection socket. Producers, clients and visitors write all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from barnabas.core.errors import InvalidRecord, InvalidRequest
from barnabas.inspection.wire import decode_question
from barnabas.network.http.forms import form_fields
from barnabas.telemetry.otlp import data_points
from tests.fuzz.target import Target, of, of_text

TREE = {
    "type": "record", "name": "Tree", "namespace": "t",
    "fields": [
        {"name": "label", "type": "string"},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "kind", "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "more", "type": {"type": "map", "values": ["double", "boolean"]}},
    ],
}  # fmt: skip
TREE_VALUE = b"\x02a\x02\x02b\x00\x00\x02\x01\x02\x00\x00\x02\x02\x04\x01\x00\x10\x02\x02k\x02\x01\x00"
PROTO = """syntax = "proto3"; package p; import "google/protobuf/timestamp.proto";
message M { string a = 1; repeated int32 b = 2; map<string, double> c = 3; M m = 4; enum E { X = 0; Y = -1; }
  E e = 5; oneof o { bytes d = 6; bool f = 7; } google.protobuf.Timestamp at = 8; fixed64 g = 9; }
"""
PROTO_VALUE = (
    b"\x0a\x01a\x12\x02\x01\x02\x1a\x0c\x0a\x01k\x11\0\0\0\0\0\0\xf0\x3f\x22\x03\x0a\x01b\x28\x00\x32\x01z"
    b"\x42\x02\x08\x01\x49\1\0\0\0\0\0\0\0\x0b\x08\x01\x0c"
)


def field(number: int, *parts: bytes) -> bytes:
    """A length-delimited field of Protobuf."""
    body = b"".join(parts)
    return bytes((number << 3 | 2, len(body))) + body


_ENTRY = field(
    4,
    field(1, b"E"),
    field(2, field(1, b"key"), b"\x18\x01\x20\x01\x28\x09"),
    field(2, field(1, b"value"), b"\x18\x02\x20\x01\x28\x05"),
    field(7, b"\x38\x01"),
)
DESCRIPTORS = field(
    1,
    field(2, b"p"),
    _ENTRY,
    field(4, field(1, b"M"), field(2, field(1, b"f"), b"\x18\x01\x20\x03\x28\x0b", field(6, b".p.E"))),
    field(5, field(1, b"C"), field(2, field(1, b"RED"), b"\x10\x01")),
    field(12, b"proto3"),
)
_POINT = field(1, field(7, field(1, b"k"), field(2, field(1, b"v"))), b"\x21" + bytes(8))
PUSH = field(1, field(2, field(2, field(1, b"name"), field(7, _POINT, b"\x10\x01"))))


def view_targets() -> Iterator[Target]:
    yield of(
        "telemetry push", lambda data: list(data_points(memoryview(data))), PUSH, refusals=(InvalidRecord,)
    )
    yield of("question", decode_question, b'{"ask": "topics", "limit": 5}', refusals=(InvalidRequest,))
    yield of("form", form_fields, b"a=1&b=%C3%A9+x&c", refusals=(ValueError,))
    try:
        yield from console_targets()
    except ImportError:
        return


def console_targets() -> Iterator[Target]:
    """Those of the console, where what it needs is installed."""
    from barnabas.console.formats.avro import AvroSchema
    from barnabas.console.formats.binary import read_cbor, read_message_pack
    from barnabas.console.formats.bounds import Undecodable, UnusableSchema
    from barnabas.console.protobuf.descriptor_set import parse_descriptor_set
    from barnabas.console.protobuf.model import Types
    from barnabas.console.protobuf.proto_text import parse_proto
    from barnabas.console.protobuf.values import decode_message
    from barnabas.console.protobuf.well_known import well_known
    from barnabas.console.protobuf.wire import protoscope
    from barnabas.console.records.expression import Candidate, InvalidExpression, compile_expression
    from barnabas.console.records.masking import Masks

    def shown(found: Any) -> None:
        json.dumps(found, allow_nan=False)

    tree = AvroSchema(json.dumps(TREE))
    message = Types([*well_known(), parse_proto(PROTO)]).message("p.M")
    record = Candidate(0, 1, 2, b"k", b'{"a": [1, {"b": "x"}]}', [("h", b"v")])
    masks = Masks(["t=a,b.c", "t:key=*"])
    yield of_text("Avro schema", AvroSchema, json.dumps(TREE), '["null", "int"]', refusals=(UnusableSchema,))
    yield of("Avro", lambda data: shown(tree.decode(data)), TREE_VALUE, refusals=(Undecodable,))
    yield of_text(
        "Protobuf schema", lambda text: Types([parse_proto(text)]), PROTO, refusals=(UnusableSchema,)
    )
    yield of(
        "descriptor set",
        lambda data: Types(parse_descriptor_set(data)),
        DESCRIPTORS,
        refusals=(UnusableSchema,),
    )
    yield of(
        "Protobuf", lambda data: shown(decode_message(data, message)), PROTO_VALUE, refusals=(Undecodable,)
    )
    yield of("Protoscope", protoscope, PROTO_VALUE, refusals=(Undecodable,))
    yield of(
        "MessagePack",
        lambda data: shown(read_message_pack(data)),
        bytes.fromhex("83a16192c0c3810281a1780302cb3ff0000000000000d6ff00000000"),
        refusals=(Undecodable,),
    )
    yield of(
        "CBOR",
        lambda data: shown(read_cbor(data)),
        bytes.fromhex("a3616183f6f5c1fb3ff0000000000000a101029f5f4101ff7f6178ffff03a1a1010203"),
        refusals=(Undecodable,),
    )
    yield of_text(
        "filter",
        lambda text: compile_expression(text)(record),
        'value.a[1].b == "x" and not (key matches "k+" or offset in [1, 2.5]) or exists(header.h)',
        'timestamp >= "2026-11-18T09:00+02:00"',
        refusals=(InvalidExpression,),
    )
    mask = masks.of("t")
    assert mask is not None
    yield of("mask", mask.of_value, b'{"a": 1, "b": [{"c": "\\u0061"}], "x": 1e5}')
