"""Bounded and sliced codecs produce the same results as plain ones."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import TypeVar

import pytest
from tests.unit.protocol.samples import Versions, all_cases, by_class, class_id, naming, random_message

from barnabas.core.bounds.budget import Budget
from barnabas.core.limits import (
    BYTES_MAX,
    BYTES_PER_TURN_MAX,
    ELEMENTS_PER_TURN_MAX,
    STRING_BYTES_MAX,
    TAGGED_FIELDS_MAX,
)
from barnabas.protocol.errors import LargeMessage, MalformedMessage
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.schema.declarations import Part
from barnabas.protocol.schema.headers import encode_response, encode_response_in_slices, read_request_header
from barnabas.protocol.schema.message import Message
from barnabas.protocol.schema.primitives import unsigned_varint

T = TypeVar("T")


def run(work: Generator[None, None, T]) -> tuple[T, int]:
    """Result of the work, and the number of its stops."""
    stops = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, stops
        stops += 1


def joined(parts: list[Part]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, bytes | bytearray))


@pytest.mark.parametrize("message", by_class(all_cases()), ids=class_id)
def test_all_kinds_of_codecs_agree(message: Versions) -> None:
    cls, versions = message
    for version in versions:
        with naming(version):
            assert_all_kinds_agree(
                random_message(cls, version, Random(f"{cls.__name__} {version}"), 3), version
            )


def assert_all_kinds_agree(message: Message, version: int) -> None:
    cls = type(message)
    encoded = message.encode(version)
    frame = memoryview(encoded)
    expected = cls.decoder(version)(frame, 0)
    assert cls.bounded_decoder(version)(frame, 0) == expected
    assert run(cls.sliced_decoder(version)(frame, 0, 100_000))[0] == expected
    for encode in (cls.bounded_encoder(version), lambda *args: run(cls.sliced_encoder(version)(*args))[0]):
        parts: list[Part] = []
        parts.append(encode(message, parts, bytearray()))
        assert b"".join(bytes(part) for part in parts) == encoded  # type: ignore[arg-type]


def metadata(topics: int, version: int) -> memoryview:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{each}") for each in range(topics)])
    return memoryview(request.encode(version))


@pytest.mark.parametrize("version", [1, 12])
def test_a_request_of_many_elements_is_left_to_slices(version: int) -> None:
    decode = MetadataRequest.bounded_decoder(version)
    assert len(decode(metadata(ELEMENTS_PER_TURN_MAX, version), 0)[0].topics or ()) == ELEMENTS_PER_TURN_MAX
    with pytest.raises(LargeMessage):
        decode(metadata(ELEMENTS_PER_TURN_MAX + 1, version), 0)
    (request, _), stops = run(MetadataRequest.sliced_decoder(version)(metadata(10_000, version), 0, 10_000))
    assert [topic.name for topic in request.topics] == [f"topic-{each}" for each in range(10_000)]
    assert stops >= 10_000 / 64


@pytest.mark.parametrize("version", [1, 12])
def test_too_many_elements_are_refused_before_any_is_read(version: int) -> None:
    work = MetadataRequest.sliced_decoder(version)(metadata(101, version), 0, 100)
    with pytest.raises(MalformedMessage, match="101 elements"):
        run(work)


@pytest.mark.parametrize("version", [4, 7])
def test_nested_arrays_are_counted_together(version: int) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=each, broker_ids=[1] * 10) for each in range(9)]
    topics = [CreatableTopic(name="t", assignments=assignments) for _ in range(9)]
    frame = memoryview(CreateTopicsRequest(topics=topics).encode(version))
    elements = 9 + 9 * 9 + 9 * 9 * 10
    assert run(CreateTopicsRequest.sliced_decoder(version)(frame, 0, elements))[0][0].topics == topics
    with pytest.raises(MalformedMessage, match="elements"):
        run(CreateTopicsRequest.sliced_decoder(version)(frame, 0, elements - 1))


def test_tagged_fields_count_as_elements() -> None:
    tags = unsigned_varint(600) + b"\x07\x00" * 600
    topics = b"\x03" + (bytes(16) + b"\x02t" + tags) * 2
    frame = memoryview(topics + b"\x00\x00" + tags)
    with pytest.raises(LargeMessage):
        MetadataRequest.bounded_decoder(12)(frame, 0)
    assert len(run(MetadataRequest.sliced_decoder(12)(frame, 0, 1_802))[0][0].topics) == 2
    with pytest.raises(MalformedMessage, match="elements"):
        run(MetadataRequest.sliced_decoder(12)(frame, 0, 1_801))


def test_a_section_of_very_many_tagged_fields_is_refused() -> None:
    fixed = b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff"

    def header(count: int) -> memoryview:
        return memoryview(fixed + unsigned_varint(count) + b"\x07\x00" * count)

    assert read_request_header(header(TAGGED_FIELDS_MAX)).body_position == len(header(TAGGED_FIELDS_MAX))
    with pytest.raises(MalformedMessage, match="tagged fields"):
        read_request_header(header(TAGGED_FIELDS_MAX + 1))


def test_a_compact_string_is_no_longer_than_any_other() -> None:
    def named(length: int) -> bytes:
        return b"\x02" + bytes(16) + unsigned_varint(length + 1) + b"x" * length + bytes(4)

    request, _ = MetadataRequest.decode(named(STRING_BYTES_MAX), 12)
    assert request.topics is not None
    assert len(request.topics[0].name or "") == STRING_BYTES_MAX
    with pytest.raises(MalformedMessage, match=r"name cannot have length 32768"):
        MetadataRequest.decode(named(STRING_BYTES_MAX + 1), 12)


def test_many_bytes_are_left_to_slices_and_very_many_refused() -> None:
    def joining(size: int) -> memoryview:
        protocols = [JoinGroupRequestProtocol(name="p", metadata=bytes(size))]
        return memoryview(JoinGroupRequest(protocols=protocols).encode(9))

    with pytest.raises(LargeMessage):
        JoinGroupRequest.bounded_decoder(9)(joining(BYTES_PER_TURN_MAX), 0)
    (request, _), _ = run(JoinGroupRequest.sliced_decoder(9)(joining(BYTES_MAX), 0, 10))
    assert len(request.protocols[0].metadata) == BYTES_MAX
    with pytest.raises(MalformedMessage, match="cannot have length"):
        run(JoinGroupRequest.sliced_decoder(9)(joining(BYTES_MAX + 1), 0, 10))


@pytest.mark.parametrize("version", [1, 12])
def test_an_answer_of_many_elements_is_left_to_slices(version: int) -> None:
    topics = [MetadataResponseTopic(name=f"topic-{each}") for each in range(10_000)]
    response = MetadataResponse(topics=topics)
    with pytest.raises(LargeMessage):
        encode_response(7, response, version)
    parts, stops = run(encode_response_in_slices(7, response, version, Budget().spend_answer))
    assert joined(parts)[-len(response.encode(version)) :] == response.encode(version)
    assert stops >= 10_000 / 64
    assert len(parts) > 1, "one buffer that grows is moved about"
