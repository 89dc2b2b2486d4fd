"""MessagePack, CBOR and the numbers of Kafka's serializers: examples of their specifications, and bounds."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.formats.binary import (
    KEY_CHARACTERS_MAX,
    read_cbor,
    read_float,
    read_integer,
    read_message_pack,
    read_uuid,
)
from barnabas.console.formats.bounds import Undecodable
from barnabas.console.records.decoding import FORMATS, show

PACKED = (
    ("82a7636f6d70616374c3a6736368656d6100", {"compact": True, "schema": 0}),
    ("93c0c2ff", [None, False, -1]),
    ("cd0100", 256),
    ("d1ff00", -256),
    ("cb3ff0000000000000", 1.0),
    ("c403010203", "010203"),
    ("d90568656c6c6f", "hello"),
    ("dc00020102", [1, 2]),
    ("de0001a16101", {"a": 1}),
    ("8101a178", {"1": "x"}),
    ("d6ff00000000", {"extension": -1, "bytes": "00000000"}),
    ("ca7f800000", "inf"),
)
CBOR = (
    ("00", 0),
    ("1bffffffffffffffff", 18446744073709551615),
    ("3863", -100),
    ("f93e00", 1.5),
    ("fb3ff199999999999a", 1.1),
    ("f97c00", "inf"),
    ("f4", False),
    ("f6", None),
    ("f818", "simple(24)"),
    ("6449455446", "IETF"),
    ("4401020304", "01020304"),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
    ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
    ("7f657374726561646d696e67ff", "streaming"),
    ("5f42010243030405ff", "0102030405"),
    ("c11a514b67b0", 1363896240),
    ("d74401020304", "01020304"),
    ("c249010000000000000000", {"tag": 2, "bytes": "010000000000000000"}),
)


@pytest.mark.parametrize(("data", "expected"), PACKED)
def test_message_pack(data: str, expected: object) -> None:
    assert read_message_pack(bytes.fromhex(data)) == expected


@pytest.mark.parametrize(("data", "expected"), CBOR)
def test_cbor(data: str, expected: object) -> None:
    assert read_cbor(bytes.fromhex(data)) == expected


def test_numbers_and_uuids_of_kafkas_serializers() -> None:
    assert [read_integer(bytes.fromhex(each)) for each in ("ff", "0100", "7fffffff", "ffffffffffffff9c")] == [
        -1,
        256,
        2**31 - 1,
        -100,
    ]
    assert read_float(bytes.fromhex("3fc00000")) == 1.5
    assert read_float(bytes.fromhex("7ff8000000000000")) == "nan"
    found = uuid.uuid4()
    assert read_uuid(found.bytes) == str(found)
    for read, data in ((read_integer, b"abc"), (read_float, b"ab"), (read_uuid, b"abc")):
        with pytest.raises(Undecodable):
            read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff" + b"\xc0" * 10,  # a list of four billion nulls
        b"\xdf\xff\xff\xff\xff" + b"\xc0" * 10,
        b"\x91" * 100_000,  # lists within lists
        b"\xdd\x00\x10\x00\x00" + b"\xc0" * (1 << 20),  # a million nulls that are there
        b"\xc1",
        b"\x01\x02",
        b"",
    ],
)
def test_bombs_of_message_pack_are_refused(data: bytes) -> None:
    with pytest.raises(Undecodable):
        read_message_pack(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x9b" + b"\xff" * 8,
        b"\xbb" + b"\xff" * 8,
        b"\x81" * 100_000,
        b"\x9f" * 100_000,
        b"\xc1" * 100_000,  # tags within tags
        b"\x9f" + b"\xf6" * (1 << 20) + b"\xff",
        b"\xff",
        b"\x81\xff",
        b"\xbf\x01\xff",
        b"\x7f\x01\xff",
        b"\x1c",
        b"",
    ],
)
def test_bombs_of_cbor_are_refused(data: bytes) -> None:
    with pytest.raises(Undecodable):
        read_cbor(data)


@pytest.mark.parametrize(
    ("read", "one"), [(read_message_pack, b"\x81"), (read_cbor, b"\xa1")], ids=["msgpack", "cbor"]
)
def test_a_key_within_a_key_does_not_grow_at_each_level(read: Callable[[bytes], Any], one: bytes) -> None:
    """The text of each would be twice that of the one within: gigabytes, of sixty bytes."""
    found = read(one * 20 + b"\x01" + b"\x00" * 20)
    assert len(json.dumps(found)) < 3 * KEY_CHARACTERS_MAX
    assert read(one * 2 + b"\x01\x02\x03") == {'{"1": 2}': 3}


@given(st.binary(max_size=64))
async def test_any_bytes_are_shown_in_every_format(data: bytes) -> None:
    for wanted in FORMATS:
        shown = await show(data, wanted, None, is_preview=False)
        assert shown.size_bytes == len(data)
        if shown.format in ("msgpack", "cbor", "integer", "float"):
            json.loads(shown.text)
