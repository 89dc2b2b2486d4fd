"""Frames that lie about their size, their contents or their kind."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from barnabas.core.limits import LOG_LINES_PER_SECOND_MAX
from tests.support import wire
from tests.support.broker import Broker
from tests.support.wire import WireConnection

pytestmark = pytest.mark.usefixtures("bystander")

UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42
UVARINT_WITHOUT_END = b"\xff" * 11
FRAME_DEADLINE_S = 30.0


def answered_or_closed(connection: WireConnection) -> str:
    try:
        connection.receive()
    except (EOFError, ConnectionError):
        return "closed"
    return "answered"


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 200 << 20])
def test_a_frame_of_an_impossible_size_closes_the_connection(connection: WireConnection, size: int) -> None:
    connection.send_raw(struct.pack(">i", size) + b"x" * 100)
    assert connection.is_closed_by_peer()


@pytest.mark.parametrize("size", [0, 1, 3, 7])
def test_a_frame_too_small_for_a_header_closes_the_connection(connection: WireConnection, size: int) -> None:
    connection.send_raw(wire.framed(b"\x00" * size))
    assert connection.is_closed_by_peer()


def test_a_frame_cut_off_by_the_end_of_the_stream_is_dropped(connection: WireConnection) -> None:
    connection.send_raw(struct.pack(">i", 1_000) + b"x" * 500)
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.is_closed_by_peer()


def test_a_connection_that_says_nothing_and_leaves_does_no_harm(broker: Broker) -> None:
    for _ in range(50):
        WireConnection(broker.host, broker.port).socket.close()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_frames_that_do_not_arrive_are_given_up(broker: Broker) -> None:
    """One connection stops in the middle of a frame, another sends it a byte at a time."""
    if broker.name == "kafka":
        pytest.skip("Apache Kafka waits for connections.max.idle.ms, ten minutes")
    with WireConnection(broker.host, broker.port) as half_open:
        with WireConnection(broker.host, broker.port) as slow:
            half_open.send_raw(struct.pack(">i", 1_000) + b"x" * 10)
            slow.send_raw(struct.pack(">i", 1_000_000))
            slow.socket.settimeout(0.5)
            deadline = time.monotonic() + 3 * FRAME_DEADLINE_S
            closed = False
            while not closed:
                assert time.monotonic() < deadline, "a slow-loris was kept"
                try:
                    slow.send_raw(b"x")
                    closed = slow.socket.recv(1) == b""
                except TimeoutError:
                    continue
                except ConnectionError:
                    closed = True
            half_open.socket.settimeout(2 * FRAME_DEADLINE_S)
            assert half_open.is_closed_by_peer()


@pytest.mark.parametrize(
    ("version", "body"),
    [
        pytest.param(1, struct.pack(">i", 2**31 - 1), id="array of two thousand million"),
        pytest.param(1, struct.pack(">i", 1_000) + wire.string("a"), id="array past the end"),
        pytest.param(1, struct.pack(">ih", 1, 32_767) + b"short", id="string past the end"),
        pytest.param(1, struct.pack(">ih", 1, -5), id="string of negative length"),
        pytest.param(1, b"", id="no body at all"),
        pytest.param(9, b"\x00" + UVARINT_WITHOUT_END, id="varint without end"),
        pytest.param(9, b"\x00" + b"\xff\xff\xff\xff\x0f", id="compact array of four thousand million"),
        pytest.param(9, b"\x00\x02\xff\xff\xff\xff\x07", id="compact string past the end"),
        pytest.param(9, b"\x00\x01\x00\x00\x00\xff\xff\xff\xff\x07", id="tagged fields past the end"),
        pytest.param(1, struct.pack(">ih", 1, 2) + b"\xff\xfe", id="string that is not UTF-8"),
    ],
)
def test_lengths_that_exceed_the_frame_are_rejected(
    connection: WireConnection, version: int, body: bytes
) -> None:
    connection.send(wire.METADATA, version, body)
    answered_or_closed(connection)


@pytest.mark.parametrize("api_key", [wire.PRODUCE, wire.FETCH, wire.LIST_OFFSETS, wire.CREATE_TOPICS])
def test_a_huge_array_in_any_request_is_rejected(connection: WireConnection, api_key: int) -> None:
    connection.send(api_key, 3 if api_key != wire.FETCH else 4, b"\x7f" * 64)
    assert answered_or_closed(connection) == "closed"


def test_a_header_with_a_client_id_past_the_end_is_rejected(connection: WireConnection) -> None:
    connection.send_raw(wire.framed(struct.pack(">hhih", wire.METADATA, 1, 7, 30_000) + b"short"))
    assert answered_or_closed(connection) == "closed"


@pytest.mark.parametrize("api_key", [-1, 999, 32_767])
def test_an_unknown_api_key_is_answered_or_closed(connection: WireConnection, api_key: int) -> None:
    connection.send(api_key, 0, b"")
    assert answered_or_closed(connection) in {"answered", "closed"}


@pytest.mark.parametrize("api_key", [wire.PRODUCE, wire.FETCH, wire.METADATA, wire.CREATE_TOPICS])
@pytest.mark.parametrize("version", [-1, 99])
def test_an_unknown_version_is_answered_or_closed(
    connection: WireConnection, api_key: int, version: int
) -> None:
    connection.send(api_key, version, b"")
    assert answered_or_closed(connection) in {"answered", "closed"}


def test_an_unknown_version_of_api_versions_gets_the_oldest_body(connection: WireConnection) -> None:
    no_tagged_fields = b"\x00"
    reader = connection.ask(wire.API_VERSIONS, 99, no_tagged_fields)
    assert reader.number("h") == UNSUPPORTED_VERSION
    keys = [reader.unpack("hhh")[0] for _ in range(reader.number("i"))]
    assert wire.API_VERSIONS in keys
    assert reader.rest == b""
    assert connection.ask(wire.API_VERSIONS, 0, b"").number("h") == 0, "the connection stays usable"


@pytest.mark.parametrize("name", [b"", b"with space!", b"-begins-with-dash"])
def test_a_bad_client_software_name_is_an_invalid_request(connection: WireConnection, name: bytes) -> None:
    def compact(text: bytes) -> bytes:
        return bytes([len(text) + 1]) + text

    header = wire.request_header(wire.API_VERSIONS, 3, 5) + b"\x00"
    connection.send_raw(wire.framed(header + compact(name) + compact(b"1.0") + b"\x00"))
    _, reader = connection.receive()
    assert reader.number("h") == INVALID_REQUEST


def test_requests_after_a_bad_one_on_the_same_connection_are_not_served(connection: WireConnection) -> None:
    connection.send(wire.METADATA, 1, struct.pack(">i", 2**31 - 1))
    connection.send_raw(wire.framed(wire.request_header(wire.METADATA, 1, 77) + wire.array([])))
    try:
        while True:
            correlation_id, _ = connection.receive()
            assert correlation_id != 77
    except (EOFError, ConnectionError):
        pass


def test_complaints_are_few_and_carry_no_payload(broker: Broker) -> None:
    secret = b"correct-horse-battery-staple"
    lines_before, began_s = broker.output_text().count("\n"), time.monotonic()
    for _ in range(300):
        with WireConnection(broker.host, broker.port) as opened:
            opened.send_raw(wire.framed(struct.pack(">hhi", wire.METADATA, 1, 1) + secret * 4))
            answered_or_closed(opened)
    output = broker.output_text()
    assert secret.decode() not in output
    if broker.name == "barnabas":
        seconds = time.monotonic() - began_s + 2  # the first and the last are not whole
        assert output.count("\n") - lines_before <= LOG_LINES_PER_SECOND_MAX * seconds


def test_a_request_in_random_pieces_is_understood(connection: WireConnection, topic: str) -> None:
    frame = wire.framed(wire.request_header(wire.METADATA, 1, 5) + wire.array([wire.string(topic)]))
    for i in range(len(frame)):
        connection.send_raw(frame[i : i + 1])
    correlation_id, reader = connection.receive()
    assert (correlation_id, reader.number("i")) == (5, 1)
