"""For any bytes a decoder raises MalformedMessage or returns; its allocations are bounded by the input."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocol.samples import Versions, all_cases, by_class, class_id, naming, random_message

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.schema.message import Message

MEMORY_PER_BYTE_MAX = 400
"""An empty struct of one byte is an object of some hundred bytes; nothing costs more."""


def attempt(cls: type[Message], version: int, data: bytes) -> None:
    try:
        _, end = cls.decode(data, version)
    except MalformedMessage:
        return
    assert 0 <= end <= len(data)


def mutated(data: bytes, random: Random) -> bytes:
    out = bytearray(data)
    for _ in range(random.randint(1, 4)):
        choice = random.random()
        at = random.randrange(len(out) + 1)
        if choice < 0.2:
            del out[at:]
        elif choice < 0.3:
            out[at:at] = random.randbytes(random.randint(1, 5))
        elif choice < 0.4:
            del out[at : at + random.randint(1, 5)]
        elif at < len(out):
            out[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    return bytes(out)


@pytest.mark.parametrize("message", by_class(all_cases()), ids=class_id)
def test_garbage_and_mutations_raise_nothing_else(message: Versions) -> None:
    cls, versions = message
    for version in versions:
        with naming(version):
            random = Random(f"{cls.__name__} {version}")
            cls.decoder(version)
            for _ in range(12):
                attempt(cls, version, random.randbytes(random.choice((0, 1, 4, 20, 200))))
            for _ in range(12):
                encoded = random_message(cls, version, random, 2).encode(version)
                attempt(cls, version, mutated(encoded[:600], random))


@settings(max_examples=300, deadline=None, database=None)
@given(data=st.binary(max_size=80), version=st.integers(0, 13))
def test_produce_requests_of_any_bytes(data: bytes, version: int) -> None:
    attempt(ProduceRequest, version, data)


@pytest.mark.parametrize("message", by_class(all_cases()[::3]), ids=class_id)
def test_every_truncation_is_noticed(message: Versions) -> None:
    cls, versions = message
    for version in versions:
        with naming(version):
            encoded = random_message(cls, version, Random(1), 2).encode(version)
            step = max(1, len(encoded) // 40)
            for length in [*range(0, len(encoded), step), len(encoded) - 1]:
                if 0 <= length < len(encoded):
                    with pytest.raises(MalformedMessage):
                        cls.decode(encoded[:length], version)


COUNT_BOMBS = [
    (MetadataRequest, 0, b"\x7f\xff\xff\xff"),
    (MetadataRequest, 9, b"\xff\xff\xff\xff\x07"),
    (ProduceRequest, 9, b"\x00\xff\xff\x00\x00\x00\x03\xff\xff\xff\xff\x07"),
    (ProduceRequest, 3, b"\xff\xff\xff\xff\x00\x00\x00\x03\x7f\xff\xff\xff"),
    (HeartbeatRequest, 0, b"\x7f\xff"),
    (SaslAuthenticateRequest, 0, b"\x7f\xff\xff\xff"),
    (SaslAuthenticateRequest, 2, b"\xff\xff\xff\xff\x07"),
    (ApiVersionsRequest, 3, b"\x01\x01\xff\xff\xff\xff\x07"),
]


@pytest.mark.parametrize(("cls", "version", "data"), COUNT_BOMBS)
def test_a_declared_length_allocates_nothing(cls: type[Message], version: int, data: bytes) -> None:
    cls.decoder(version)
    frame = data + bytes(10_000 if len(data) > 2 else 100)  # enough to begin with, never enough
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="cannot have length"):
            cls.decode(frame, version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 0, b"\x00\x00\x80\x00" + bytes(2 * 0x8000)),
        (MetadataRequest, 9, b"\x81\x80\x04" + b"\x01\x00" * 0x10000),
        (FetchRequest, 12, b"\xff" * 4 + bytes(9 + 4 + 4 + 4) + b"\x81\x80\x04" + b"\x01\x01\x00" * 0x10000),
    ],
)
def test_memory_is_bounded_by_the_bytes_received(cls: type[Message], version: int, data: bytes) -> None:
    cls.decoder(version)
    tracemalloc.start()
    try:
        attempt(cls, version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(data) * MEMORY_PER_BYTE_MAX


def test_a_varint_has_at_most_five_bytes() -> None:
    for data in (b"\x80" * 6, b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80\x00"):
        with pytest.raises(MalformedMessage, match="five bytes"):
            MetadataRequest.decode(data + bytes(20), 9)


def test_null_is_refused_where_it_is_not_allowed() -> None:
    for version, data in ((0, b"\xff\xff\xff\xff"), (0, b"\xff\xff\xff\x00")):
        with pytest.raises(MalformedMessage):
            MetadataRequest.decode(data, version)
    assert MetadataRequest.decode(b"\xff\xff\xff\xff", 1)[0].topics is None
    for version, data in ((0, b"\xff\xff" + bytes(8)), (4, b"\x00" + bytes(8))):
        with pytest.raises(MalformedMessage, match="group_id"):
            HeartbeatRequest.decode(data, version)


def test_text_must_be_utf8() -> None:
    with pytest.raises(MalformedMessage, match="UTF-8"):
        HeartbeatRequest.decode(b"\x00\x02\xc3\x28" + bytes(10), 0)


def test_any_byte_but_zero_is_true() -> None:
    data = b"\x00\x00\x00\x00" + b"\x05"
    assert MetadataRequest.decode(data, 4)[0].allow_auto_topic_creation is True


def test_a_tagged_field_must_fill_its_size() -> None:
    fixed = b"\xff" * 4 + bytes(4 * 2 + 4 + 1 + 4 + 4) + b"\x01\x01\x01"
    assert FetchRequest.decode(fixed + b"\x01\x00\x03\x03ab", 12)[0].cluster_id == "ab"
    for section in (b"\x01\x00\x04\x03abc", b"\x01\x00\x02\x03ab", b"\x01\x00\x09\x03ab"):
        with pytest.raises(MalformedMessage):
            FetchRequest.decode(fixed + section, 12)


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    data = plain.encode(3)[:-1] + b"\x02\x05\x03abc\xac\x02\x00"
    assert ApiVersionsRequest.decode(data, 3) == (plain, len(data))


def test_a_nullable_struct_is_told_by_its_first_byte() -> None:
    request = DescribeTopicPartitionsRequest()
    encoded = request.encode(0)
    assert encoded[-2:] == b"\xff\x00"
    assert DescribeTopicPartitionsRequest.decode(encoded, 0)[0].cursor is None
