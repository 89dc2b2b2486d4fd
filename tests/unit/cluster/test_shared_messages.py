"""Messages and frames of the shared store: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import random
import struct

import pytest

from barnabas.cluster.coordination.contract import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventType,
    SetData,
    Stat,
    WatchEvent,
)
from barnabas.cluster.shared import messages as m
from barnabas.cluster.shared.fields import MalformedMessage
from barnabas.cluster.shared.frames import FrameBuffer, frame

STAT = Stat(1, 2, 3, 4, 5, 6, 1 << 60, 8, 9, 10)

REQUESTS: list[m.Request] = [
    m.Hello(1, 1 << 40, 18_000, "broker-1"),
    m.Ping(),
    m.Write(
        [Create("/a", b"\0\xff", True, True), SetData("/b", b"", 3), Delete("/größe"), Check("/c", 7)], True
    ),
    m.MakePaths(["/a", "/b/c"]),
    m.Get("/a", True),
    m.GetMany(["/a", "/火"]),
    m.Exists("/a", False),
    m.WatchMany([]),
    m.Children("/", True),
    m.SetWatches(9, ["/a"], ["/b"], ["/c", "/d"]),
    m.Close(),
    m.ProcessEnded("broker-1"),
    m.SupervisedEnded(),
]
ANSWERS: list[m.Answer] = [
    m.Welcome(1 << 40, 18_000),
    m.Expired(),
    m.Done(),
    m.Results(["/a0000000001", STAT, None]),
    m.Node(b"data", STAT),
    m.Nodes([m.Node(b"", STAT), None]),
    m.Presence(None),
    m.Presence(STAT),
    m.Missing(["/a"]),
    m.Names(["a", "größe"]),
    m.Failed(3, "/a", -1),
    m.Event(1, "/a"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_request_is_read_as_it_was_written(request_: m.Request) -> None:
    assert m.decode_request(m.encode_request(7, request_)) == (7, request_)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda each: type(each).__name__)
def test_an_answer_is_read_as_it_was_written(answer: m.Answer) -> None:
    assert m.decode_answer(m.encode_answer(7, 99, answer)) == (7, 99, answer)


def test_every_kind_of_message_is_tested() -> None:
    assert {type(each) for each in REQUESTS} == set(m.Request.__args__)
    assert {type(each) for each in ANSWERS} == set(m.Answer.__args__)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_message_that_ends_early_or_late_is_refused(request_: m.Request) -> None:
    whole = m.encode_request(7, request_)
    for length in range(len(whole)):
        with pytest.raises(MalformedMessage):
            m.decode_request(whole[:length])
    with pytest.raises(MalformedMessage):
        m.decode_request(whole + b"\0")


def test_damaged_bytes_are_refused_or_read_and_nothing_else() -> None:
    chance = random.Random(1)
    for request in REQUESTS:
        whole = m.encode_request(7, request)
        for _ in range(300):
            damaged = bytearray(whole)
            damaged[chance.randrange(len(whole))] = chance.randrange(256)
            try:
                m.decode_request(bytes(damaged))
            except MalformedMessage:
                continue


def test_a_list_longer_than_its_frame_takes_no_memory() -> None:
    head = m.encode_request(7, m.MakePaths([]))[:-4]
    with pytest.raises(MalformedMessage, match="4294967295"):
        m.decode_request(head + b"\xff\xff\xff\xff")


def test_errors_and_events_keep_their_kind() -> None:
    refusal = BadVersion("/a")
    refusal.index = 2
    read = m.error_of(m.failed(refusal))
    assert (type(read), read.path, read.index) == (BadVersion, "/a", 2)
    for kind in EventType:
        assert m.watch_event_of(m.event_of(WatchEvent(kind, "/a"))) == WatchEvent(kind, "/a")
    with pytest.raises(MalformedMessage):
        m.error_of(m.Failed(99, "/a", 0))
    with pytest.raises(MalformedMessage):
        m.watch_event_of(m.Event(99, "/a"))


def test_frames_come_in_any_pieces() -> None:
    payloads = [b"a", b"bc" * 500, b"d"]
    stream = b"".join(map(frame, payloads))
    for size in (1, 3, 7, len(stream)):
        buffer = FrameBuffer(1_000)
        found: list[bytes] = []
        for start in range(0, len(stream), size):
            found += buffer.feed(stream[start : start + size])
        assert found == payloads


@pytest.mark.parametrize("length", [0, 1_001, 0xFFFFFFFF])
def test_a_frame_that_is_empty_or_too_large_is_refused_before_it_is_received(length: int) -> None:
    with pytest.raises(MalformedMessage, match=str(length)):
        FrameBuffer(1_000).feed(struct.pack(">I", length))
