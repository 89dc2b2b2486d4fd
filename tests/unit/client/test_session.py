"""Bytes in, answers out: frames wherever the stream is cut, and versions wherever the broker stands."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from barnabas.client.core.frames import FRAME_BYTES_MAX, BrokenStream, FrameBuffer
from barnabas.client.core.session import API_VERSIONS_FIRST_TRIED, JOINED_BYTES_MAX, Pending, Session
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import ClusterAuthorizationFailed, UnsupportedVersion
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def feed(target: FrameBuffer | Session[Pending], stream: bytes) -> list[Any]:
    """Frames that come out as the stream is received, as much at a time as the buffer takes."""
    out: list[Any] = []
    while stream:
        buffer = (target.frames if isinstance(target, Session) else target).get_buffer()
        taken = min(len(buffer), len(stream))
        buffer[:taken] = stream[:taken]
        out += target.received(taken)
        stream = stream[taken:]
    return out


def frames_of(stream: bytes, cuts: list[int], *, reuse: bool = False) -> list[bytes]:
    frames = FrameBuffer()
    bodies: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        piece = stream[start:end]
        while piece:
            buffer = frames.get_buffer()
            taken = min(len(buffer), len(piece))
            buffer[:taken] = piece[:taken]
            for body in frames.received(taken):
                bodies.append(bytes(body))
                if reuse:
                    frames.reuse(body)
            piece = piece[taken:]
    return bodies


def test_frames_are_the_same_wherever_the_stream_is_cut() -> None:
    bodies = [b"", b"a", b"bc" * 129, bytes(range(256)) * 2 + b"xyz", bytes(range(40))]
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    for first in range(len(stream)):
        for second in range(first, len(stream), 97):
            assert frames_of(stream, [first, second]) == bodies
    assert frames_of(stream, list(range(1, len(stream)))) == bodies


def test_frames_that_share_their_memory_one_after_the_other_are_the_same() -> None:
    bodies = [bytes([number]) * size for number, size in enumerate([100_000, 70_000, 200_000, 3, 150_000])]
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    for cuts in ([], [99_000, 100_010, 170_020], list(range(1_000, len(stream), 1_000))):
        assert frames_of(stream, cuts, reuse=True) == bodies


@pytest.mark.parametrize("reuse", [True, False])
def test_memory_is_used_again_only_when_it_is_given_back(reuse: bool) -> None:
    frames = FrameBuffer()
    stream = struct.pack(">i", 100_000) + bytes(100_000)
    (first,) = feed(frames, stream)
    assert isinstance(first, memoryview)
    if reuse:
        frames.reuse(first)
    (second,) = feed(frames, stream)
    assert isinstance(second, memoryview)
    assert (first.obj is second.obj) is reuse


@pytest.mark.parametrize("size", [-1, FRAME_BYTES_MAX + 1])
def test_a_frame_of_an_impossible_size_is_the_end(size: int) -> None:
    with pytest.raises(BrokenStream, match=f"the broker sent a frame of {size} bytes"):
        frames_of(struct.pack(">i", size) + b"abc", [])


def session_with(**versions: tuple[int, int]) -> Session[Pending]:
    session: Session[Pending] = Session(Endpoint("a", 1), "me")
    rows = [
        ApiVersion(api_key=ApiKey[name.upper()], min_version=lowest, max_version=highest)
        for name, (lowest, highest) in versions.items()
    ]
    assert session.settle_versions(API_VERSIONS_FIRST_TRIED, ApiVersionsResponse(api_keys=rows)) is None
    return session


def answer_frame(correlation_id: int, answer: MetadataResponse, version: int) -> bytes:
    body = struct.pack(">i", correlation_id) + answer.encode(version)
    return struct.pack(">i", len(body)) + body


def test_answers_come_with_the_requests_that_they_answer() -> None:
    session = session_with(metadata=(0, 1))
    asked = [Pending() for _ in range(3)]
    for pending in asked:
        session.ask(MetadataRequest(), MetadataResponse, 1, pending)
    stream = b"".join(answer_frame(each, MetadataResponse(controller_id=each), 1) for each in range(3))
    answers = feed(session, stream)
    assert [(whose, answer.controller_id) for whose, answer in answers] == [
        (asked[0], 0),
        (asked[1], 1),
        (asked[2], 2),
    ]
    assert not session.pending


def test_an_answer_out_of_turn_is_the_end() -> None:
    session = session_with(metadata=(0, 1))
    for _ in range(2):
        session.ask(MetadataRequest(), MetadataResponse, 1, Pending())
    with pytest.raises(
        BrokenStream, match="answer to Metadata cannot be decoded: correlation id 1 arrived instead of 0"
    ):
        feed(session, answer_frame(1, MetadataResponse(), 1))


def test_an_answer_to_nothing_is_the_end() -> None:
    with pytest.raises(BrokenStream, match="an answer without a request"):
        feed(session_with(metadata=(0, 1)), answer_frame(0, MetadataResponse(), 1))


def test_small_requests_are_joined_and_large_ones_are_not_copied() -> None:
    session = session_with(produce=(3, 9))
    for size, is_joined in ((100, True), (2 * JOINED_BYTES_MAX, False)):
        records = bytes(size)
        partition = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="t", partition_data=[partition])
        parts = session.encode(ProduceRequest(acks=0, topic_data=[topic]), 9)
        assert (len(parts) == 1) is is_joined
        assert any(part is records for part in parts) is not is_joined
        assert int.from_bytes(parts[0][:4]) == sum(map(len, parts)) - 4


def test_an_older_broker_is_asked_for_its_versions_in_its_own() -> None:
    session: Session[Pending] = Session(Endpoint("a", 1), "me")
    row = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)
    refusal = ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[row])
    assert session.settle_versions(API_VERSIONS_FIRST_TRIED, refusal) == 2
    silent = ApiVersionsResponse(error_code=UnsupportedVersion.code)
    assert session.settle_versions(API_VERSIONS_FIRST_TRIED, silent) == 0
    with pytest.raises(UnsupportedVersion, match="a:1 rejects ApiVersions"):
        session.settle_versions(0, silent)
    with pytest.raises(ClusterAuthorizationFailed):
        session.settle_versions(0, ApiVersionsResponse(error_code=ClusterAuthorizationFailed.code))


def test_a_version_fits_both_sides() -> None:
    session = session_with(metadata=(1, 8))
    assert session.version_for(MetadataRequest) == 8
    assert session.version_for(MetadataRequest, version_max=4) == 4
    with pytest.raises(UnsupportedVersion, match="a:1 has no usable version of Metadata: it has 1 to 8"):
        session.version_for(MetadataRequest, version_max=0)
    with pytest.raises(UnsupportedVersion, match="it has none"):
        session.version_for(ProduceRequest)
