"""Protobuf by our own reader: what protoc and Google's library say, and bounds."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from grpc_tools import protoc  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.formats.bounds import (
    DEPTH_MAX,
    NAME_CHARACTERS_MAX,
    NAME_PARTS_MAX,
    Undecodable,
    UnusableSchema,
)
from barnabas.console.protobuf.descriptor_set import parse_descriptor_set
from barnabas.console.protobuf.model import Field, Message, Types
from barnabas.console.protobuf.proto_text import parse_proto
from barnabas.console.protobuf.values import decode_message
from barnabas.console.protobuf.well_known import well_known
from barnabas.console.protobuf.wire import protoscope
from barnabas.console.schemas.given import GIVEN_MAX, GivenSchemas, messages_of_topics
from barnabas.core.errors import InvalidConfig

PROTO = """
// An order. /* not a comment of its own */
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "com.example; { }";
option (custom).nested = { a: 1 b: { c: "}" } d < e: 2 > };

enum Colour { option allow_alias = true; UNKNOWN = 0; RED = 1; BLUE = -5 [deprecated = true]; ROT = 1; }

message Order {
  reserved 100 to max; reserved "old";
  message Item {
    string sku = 1; uint32 count = 2 [(check) = { min: 1 }, deprecated = true];
    message Deep { Colour colour = 1; }
    Deep deep = 3;
  }
  int64 id = 1;
  string customer = 2;
  repeated Item items = 3;
  map<string, double> prices = 4;
  map<int32, Item> by_number = 5;
  Colour colour = 6;
  google.protobuf.Timestamp at = 7;
  optional int32 discount = 8;
  oneof payment { string card = 9; bool cash = 10; }
  repeated int32 numbers = 11;
  repeated sint64 zigzag = 12 [packed = false];
  bytes raw = 13;
  float ratio = 14;
  fixed64 big = 15;
  sfixed32 small = 16;
  .shop.v1.Order previous = 17;
  repeated Colour colours = 18;
}
service Orders { rpc Get (Order) returns (stream Order) { option x = 1; } }
"""


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Descriptor that protoc makes of the file."""
    directory = tmp_path_factory.mktemp("proto")
    plain = "\n".join(
        line for line in PROTO.replace("[(check) = { min: 1 }, deprecated = true]", "").splitlines()
        if "(custom)" not in line and "option x" not in line
    )  # fmt: skip
    (directory / "order.proto").write_text(plain)
    out = directory / "set.bin"
    include = Path(protoc.__file__).parent / "_proto"
    arguments = [
        "protoc", f"-I{directory}", f"-I{include}", "--include_imports", f"--descriptor_set_out={out}",
        "order.proto",
    ]  # fmt: skip
    assert protoc.main(arguments) == 0
    return out.read_bytes()


@pytest.fixture(scope="module")
def order(descriptors: bytes) -> Any:
    """Google's class of the message."""
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for each in files.file:
        if each.package == "shop.v1":
            pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Order"))


def by_text() -> Message:
    return Types([*well_known(), parse_proto(PROTO)]).message("shop.v1.Order")


def filled(order: Any) -> Any:
    made = order(
        id=-(2**62), customer="ada", colour=1, card="4711", numbers=[1, -2, 300], zigzag=[-1, 2**40],
        raw=b"\x00\xff", ratio=0.5, big=2**63, small=-9, prices={"a": 1.5, "": 2.5}, colours=[0, 1],
    )  # fmt: skip
    made.items.add(sku="A-1", count=3).deep.colour = 1
    made.items.add(sku="B-2")
    made.by_number[-7].sku = "C"
    made.at.FromJsonString("2026-11-18T09:00:00.25Z")
    made.previous.id = 5
    return made


EXPECTED = {
    "id": -(2**62), "customer": "ada", "colour": "RED", "card": "4711", "numbers": [1, -2, 300],
    "zigzag": [-1, 2**40], "raw": "00ff", "ratio": 0.5, "big": 2**63, "small": -9,
    "prices": {"a": 1.5, "": 2.5}, "colours": ["UNKNOWN", "RED"],
    "items": [{"sku": "A-1", "count": 3, "deep": {"colour": "RED"}}, {"sku": "B-2", "count": 0}],
    "by_number": {"-7": {"sku": "C", "count": 0}}, "at": "2026-11-18T09:00:00.25Z",
}  # fmt: skip


@pytest.mark.parametrize("source", ["text", "descriptors"])
def test_a_message_of_google_is_decoded(source: str, order: Any, descriptors: bytes) -> None:
    message = by_text() if source == "text" else Types(parse_descriptor_set(descriptors)).message("Order")
    found = decode_message(filled(order).SerializeToString(), message)
    previous = found.pop("previous")
    assert found == EXPECTED
    assert previous["id"] == 5
    missing = decode_message(b"", message)
    assert missing["id"] == 0
    assert missing["colour"] == "UNKNOWN"
    assert "discount" not in missing
    assert "card" not in missing


def test_fields_that_nobody_declared_are_shown() -> None:
    message = Types(
        [parse_proto('syntax = "proto2"; message M { optional int32 a = 1; optional Gone g = 2; }')]
    )
    data = b"\x08\x01\x12\x02\x08\x05\x1a\x01x\x2d\x01\x00\x00\x00\x0a\x01z"
    assert decode_message(data, message.message("M")) == {
        "a": 1, "#2": ["0805"], "#3": ["78"], "#5": [1], "#1": ["7a"],
    }  # fmt: skip


def test_groups_of_proto2_are_decoded() -> None:
    text = "message M { repeated group Row = 1 { optional int32 x = 2; } optional string s = 3; }"
    message = Types([parse_proto(text)]).message("M")
    assert decode_message(b"\x0b\x10\x05\x0c\x1a\x01a", message) == {"row": [{"x": 5}], "s": "a"}


def test_the_wire_is_shown_without_a_schema(order: Any) -> None:
    made = order(id=150, customer="testing", ratio=0.5, big=7, raw=b"\x00\xff")
    made.previous.id = 5
    assert protoscope(made.SerializeToString()).splitlines() == [
        "1:VARINT 150",
        '2:LEN {"testing"}',
        "13:LEN {`00ff`}",
        "14:I32 1056964608  # 0.5",
        "15:I64 7  # 3.5e-323",
        "17:LEN {",
        "  1:VARINT 5",
        "}",
    ]
    assert protoscope(b"\x0b\x10\x05\x0c") == "1:SGROUP {\n  2:VARINT 5\n}"


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\x08", b"\x0a\x05ab", b"\x0f", b"\x0b\x10\x05", b"\x0c", b"\x0b\x14", b"\xff" * 11],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(Undecodable):
        protoscope(data)


def chain(depth: int) -> bytes:
    found = b""
    for _ in range(depth):
        size, head = len(found), bytearray()
        while size >= 0x80:
            head.append(size & 0x7F | 0x80)
            size >>= 7
        found = b"\x8a\x01" + bytes([*head, size]) + found
    return found


def test_a_message_that_nests_deeply_is_refused() -> None:
    with pytest.raises(Undecodable, match="levels deep"):
        decode_message(chain(DEPTH_MAX + 5), by_text())
    with pytest.raises(Undecodable, match="levels deep"):
        decode_message(chain(2_000), by_text())
    protoscope(chain(2_000))  # deep bytes show as digits
    groups = b"\x0b" * 100_000 + b"\x0c" * 100_000
    with pytest.raises(Undecodable):
        protoscope(groups)


def test_small_bytes_do_not_become_large_values() -> None:
    """A message of many fields with defaults, thousands of times in two bytes each."""
    fields = "".join(f"int32 f{number} = {number}; " for number in range(1, 2_000))
    text = f'syntax = "proto3"; message Wide {{ {fields} }} message M {{ repeated Wide wide = 1; }}'
    message = Types([parse_proto(text)]).message("M")
    with pytest.raises(Undecodable, match="parts"):
        decode_message(b"\x0a\x00" * 100_000, message)
    with pytest.raises(Undecodable, match="parts"):
        decode_message(b"\x5a\x80\x80\x10" + bytes(1 << 18), by_text())
    with pytest.raises(Undecodable, match=r"parts|fields"):
        protoscope(b"\x08\x00" * 300_000)


@pytest.mark.parametrize(
    "text",
    [
        "message",
        "message M {",
        "message M { int32 a = 0; }",
        "message M { int32 a = 99999999999999999999999; }",
        "message M { int32 a = 0x; }",
        "message M { int32 = 1; }",
        "message M { map<string> m = 1; }",
        "enum E { A; }",
        "option x = {",
        'import "unclosed',
        "/* unclosed",
        "\x00",
        "message M { oneof o { ",
        "message M { " * 10_000,
        "option a = " + "{" * 100_000,
        "x" * (2 << 20),
        "syntax",
        f"package {'p' * NAME_CHARACTERS_MAX}; message M {{ }}",
        f"package {'p' * NAME_CHARACTERS_MAX}; enum E {{ }}",
        f"package {'.'.join('p' * NAME_PARTS_MAX)}; message M {{ }}",
        f"message M {{ {'t' * (NAME_CHARACTERS_MAX + 1)} f = 1; }}",
    ],
)
def test_files_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(UnusableSchema):
        parse_proto(text)


def test_the_fields_of_a_message_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value names a message of many fields thousands of times, in two bytes each."""
    looks: list[Field] = []
    has_default: Any = Field.__dict__["has_default"]

    def counted(field: Field) -> bool:
        looks.append(field)
        return bool(has_default.fget(field))

    monkeypatch.setattr(Field, "has_default", property(counted))
    fields = "".join(f"optional bool f{number} = {number}; " for number in range(1, 101))
    types = Types([parse_proto(f"message Wide {{ {fields} }} message M {{ repeated Wide wide = 1; }}")])
    assert decode_message(b"\x0a\x00" * 100, types.message("M")) == {"wide": [{}] * 100}
    assert len(looks) == 101


def test_a_message_of_a_known_name_may_have_other_fields() -> None:
    text = """package google.protobuf; message Timestamp { string seconds = 1; }
    message Duration { string seconds = 1; }"""
    types = Types([*well_known(), parse_proto(text)])
    for name in ("Timestamp", "Duration"):
        assert decode_message(b"\x0a\x01x", types.message(f"google.protobuf.{name}")) == {"seconds": "x"}


def test_a_map_needs_a_key_and_a_value() -> None:
    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="f")
    file.message_type.add(name="E").options.map_entry = True
    file.message_type.add(name="M").field.add(name="f", number=1, label=3, type=11, type_name=".E")
    types = Types(parse_descriptor_set(found.SerializeToString()))
    assert decode_message(b"\x0a\x00", types.message("M")) == {"f": [{}]}


def test_names_resolve_to_the_innermost_type() -> None:
    text = """package a; message T { int32 outer = 1; }
    message M { message T { int32 inner = 1; } T one = 1; .a.T two = 2; a.T three = 3; }"""
    found = decode_message(
        b"\x0a\x02\x08\x01\x12\x02\x08\x01\x1a\x02\x08\x01", Types([parse_proto(text)]).message("M")
    )
    assert found == {"one": {"inner": 1}, "two": {"outer": 1}, "three": {"outer": 1}}


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for read in (protoscope, lambda each: decode_message(each, by_text())):
        try:
            json.dumps(read(data), allow_nan=False)
        except Undecodable:
            """Most bytes are no message."""


@given(st.binary(max_size=300))
def test_any_bytes_are_a_descriptor_set_or_not(data: bytes) -> None:
    try:
        Types(parse_descriptor_set(data))
    except UnusableSchema:
        """Most bytes are none."""


def test_infinity_is_text() -> None:
    message = Types([parse_proto("message M { optional double d = 1; }")]).message("M")
    assert decode_message(b"\x09" + struct.pack("<d", math.inf), message) == {"d": "inf"}


# --- given by the operator, and by users ---


def test_messages_of_topics_come_from_files(tmp_path: Path, descriptors: bytes) -> None:
    text, binary = tmp_path / "order.proto", tmp_path / "set.bin"
    text.write_text(PROTO)
    binary.write_bytes(descriptors)
    for file in (text, binary):
        found = messages_of_topics([file], ["orders=shop.v1.Order", "orders:key=Item"])
        assert found["orders", "value"].full_name == "shop.v1.Order"
        assert found["orders", "key"].full_name == "shop.v1.Order.Item"
    with pytest.raises(InvalidConfig, match=r"no message 'Nothing'; there are shop\.v1\.Order"):
        messages_of_topics([text], ["orders=Nothing"])
    with pytest.raises(InvalidConfig, match="TOPIC=MESSAGE"):
        messages_of_topics([text], ["orders"])
    text.write_text("message {")
    with pytest.raises(InvalidConfig, match="line 1"):
        messages_of_topics([text], [])
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match="descriptor set"):
        messages_of_topics([binary], [])


def test_a_schema_of_a_user_counts_for_the_own_session() -> None:
    schemas = GivenSchemas()
    schemas.give("mine", ("t", "value"), "message A {} message B {}", "B")
    found = schemas.message("mine", ("t", "value"))
    assert found is not None
    assert found.full_name == "B"
    assert schemas.message("other", ("t", "value")) is None
    assert schemas.message("mine", ("t", "key")) is None
    for number in range(GIVEN_MAX):
        schemas.give(str(number), ("t", "value"), "message A {}", "")
    assert schemas.message("mine", ("t", "value")) is None, "others made it leave"
    with pytest.raises(UnusableSchema, match="characters"):
        schemas.give("mine", ("t", "value"), "x" * 100_000, "")
