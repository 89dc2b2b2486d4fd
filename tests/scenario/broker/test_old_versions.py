"""Clients from before the present record format: what they write and read is converted on the way."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from barnabas.core.errors import UnsupportedVersion
from barnabas.testing.broker import run_broker
from tests.support.wire import (
    FETCH,
    PRODUCE,
    WireConnection,
    array,
    batch,
    fetch_body,
    message_set_entry,
    nullable_bytes,
    string,
)

MAGIC_AT = 16


@pytest.fixture(scope="module")
def connection() -> Iterator[WireConnection]:
    with run_broker() as broker:
        host, port = broker.bootstrap.split(":")
        with WireConnection(host, int(port)) as opened:
            yield opened


def fetched(connection: WireConnection, version: int, topic: str, expected_error: int = 0) -> bytes:
    """The records of partition 0 from offset 0 on, in a fetch of an old version."""
    body = struct.pack(">iii", -1, 0, 1)
    if version >= 3:
        body += struct.pack(">i", 1 << 20)
    body += array([string(topic) + array([struct.pack(">iqi", 0, 0, 1 << 20)])])
    answer = connection.ask(FETCH, version, body)
    if version >= 1:
        assert answer.number("i") == 0, "throttle time"
    answer.number("i")
    assert answer.string() == topic
    _, index, error, high_watermark = answer.unpack("iihq")
    assert (index, error, high_watermark) == (0, expected_error, 1)
    return answer.byte_string() or b""


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_an_old_fetch_gets_messages_of_its_time(connection: WireConnection, version: int, magic: int) -> None:
    topic = f"read-{version}"
    assert connection.create_topic(topic) == 0
    assert connection.produce(topic, batch([b"new"])) == (0, 0)
    records = fetched(connection, version, topic)
    assert records[MAGIC_AT] == magic
    assert records.endswith(nullable_bytes(b"new"))


def test_an_old_fetch_gets_nothing_where_conversion_is_switched_off() -> None:
    with run_broker({"log.message.downconversion.enable": "false"}) as broker:
        host, port = broker.bootstrap.split(":")
        with WireConnection(host, int(port)) as connection:
            assert connection.create_topic("new-only") == 0
            assert connection.produce("new-only", batch([b"new"])) == (0, 0)
            assert fetched(connection, 3, "new-only", UnsupportedVersion.code) == b""


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
def test_messages_of_an_old_producer_are_stored_in_the_present_format(
    connection: WireConnection, version: int, magic: int
) -> None:
    topic = f"write-{version}"
    assert connection.create_topic(topic) == 0
    data = array([struct.pack(">i", 0) + nullable_bytes(message_set_entry(b"old", magic=magic))])
    answer = connection.ask(PRODUCE, version, struct.pack(">hi", -1, 1_000) + array([string(topic) + data]))
    answer.number("i")
    assert answer.string() == topic
    assert answer.unpack("iihq") == (1, 0, 0, 0), "one partition, number 0, no error, offset 0"
    answer = connection.ask(FETCH, 4, fetch_body(topic, 0))
    assert answer.rest[-len(batch([b"old"])) :][MAGIC_AT] == 2
    assert b"old" in answer.rest


@pytest.mark.parametrize("version", [0, 2])
def test_many_messages_of_an_old_producer_are_answered_in_their_turn(
    connection: WireConnection, version: int
) -> None:
    """They are converted elsewhere, and the next request of the connection waits for them."""
    topic, count = f"many-{version}", 3_000
    assert connection.create_topic(topic) == 0
    entry = message_set_entry(b"old", magic=1 if version == 2 else 0)
    for messages, expected in ((entry * count, (1, 0, 0, 0)), (entry * 2, (1, 0, 0, count))):
        data = array([struct.pack(">i", 0) + nullable_bytes(messages)])
        body = struct.pack(">hi", -1, 1_000) + array([string(topic) + data])
        answer = connection.ask(PRODUCE, version, body)
        answer.number("i")
        assert answer.string() == topic
        assert answer.unpack("iihq") == expected
    assert connection.latest_offset(topic) == count + 2
