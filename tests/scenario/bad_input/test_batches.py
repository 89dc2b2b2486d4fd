"""Batches that must not enter a log, and the error code for each.

Where Apache Kafka answers with another code than our table, it is named: both refuse.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
import zstandard

from tests.support import wire
from tests.support.broker import Broker, resident_bytes
from tests.support.fixtures import TopicFactory
from tests.support.wire import WireConnection, batch

pytestmark = pytest.mark.usefixtures("bystander")

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_REQUIRED_ACKS, INVALID_RECORD = 2, 10, 21, 87
UNKNOWN_SERVER_ERROR = -1
CONTROL = 0x20
SNAPPY, ZSTD = 2, 4
GOOD = batch([b"a", b"b"])
IDEMPOTENT: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}


def altered(data: bytes, position: int, replacement: bytes) -> bytes:
    return data[:position] + replacement + data[position + len(replacement) :]


BAD_BATCHES = {
    "wrong CRC": (batch([b"a"], crc=12_345), {CORRUPT_MESSAGE}),
    "one flipped bit": (altered(GOOD, len(GOOD) - 3, b"\xaa"), {CORRUPT_MESSAGE}),
    "cut short": (GOOD[:-5], {CORRUPT_MESSAGE}),
    "less than a header": (GOOD[:20], {CORRUPT_MESSAGE}),
    "a length that is negative": (altered(GOOD, 8, struct.pack(">i", -1)), {CORRUPT_MESSAGE}),
    "a length too small for a header": (altered(GOOD, 8, struct.pack(">i", 10)), {CORRUPT_MESSAGE}),
    "a length past the end": (altered(GOOD, 8, struct.pack(">i", 10_000)), {CORRUPT_MESSAGE}),
    "magic 1 in a new request": (wire.message_set_entry(b"old", magic=1), {INVALID_RECORD}),
    "magic 0 in a new request": (wire.message_set_entry(b"old", magic=0), {INVALID_RECORD}),
    "magic from the future": (batch([b"a"], magic=3), {INVALID_RECORD}),
    "mixed magic": (GOOD + wire.message_set_entry(b"old", magic=1), {INVALID_RECORD}),
    "two batches": (GOOD + GOOD, {INVALID_RECORD}),
    "fewer records than offsets": (batch([b"a", b"b"], last_offset_delta=5), {INVALID_RECORD}),
    "more records than offsets": (batch([b"a", b"b", b"c"], last_offset_delta=1), {INVALID_RECORD}),
    "no records": (batch([], last_offset_delta=-1), {INVALID_RECORD}),
    "a negative count": (batch([], count=-3, last_offset_delta=0), {INVALID_RECORD}),
    "a control batch": (batch([b"a"], attributes=CONTROL), {INVALID_RECORD}),
    "a negative sequence": (batch([b"a"], base_sequence=-1, **IDEMPOTENT), {INVALID_RECORD}),
}
KAFKAS_OTHER_CODES = {CORRUPT_MESSAGE, INVALID_RECORD}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_is_refused_and_nothing_is_appended(
    broker: Broker, connection: WireConnection, topic: str, name: str
) -> None:
    records, codes = BAD_BATCHES[name]
    error, _ = connection.produce(topic, records)
    assert error in (codes if broker.name == "barnabas" else codes | KAFKAS_OTHER_CODES)
    assert connection.latest_offset(topic) == 1, "only the bystander's record"
    assert connection.produce(topic, GOOD) == (0, 1), "the connection stays usable"


@pytest.mark.parametrize("records", [None, b""])
def test_a_partition_with_no_records_is_refused(
    broker: Broker, connection: WireConnection, topic: str, records: bytes | None
) -> None:
    if broker.name == "kafka" and records is None:
        pytest.skip("Apache Kafka never answers null records")
    try:
        error, _ = connection.produce(topic, records)
    except (EOFError, ConnectionError):
        return
    assert error in {CORRUPT_MESSAGE, INVALID_RECORD}


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_impossible_acks_are_refused(connection: WireConnection, topic: str, acks: int) -> None:
    error, _ = connection.produce(topic, GOOD, acks=acks)
    assert error == INVALID_REQUIRED_ACKS
    assert connection.latest_offset(topic) == 1


def test_a_failure_with_no_acknowledgement_closes_the_connection(
    connection: WireConnection, topic: str
) -> None:
    bad = batch([b"a"], crc=1)
    connection.send(wire.PRODUCE, wire.PRODUCE_VERSION, wire.produce_body(topic, bad, acks=0))
    assert connection.is_closed_by_peer()


def test_a_batch_past_max_message_bytes_is_refused(
    connection: WireConnection, new_topic: TopicFactory
) -> None:
    topic = new_topic(max_message_bytes=1_000)
    assert connection.produce(topic, batch([bytes(2_000)]))[0] == MESSAGE_TOO_LARGE
    assert connection.produce(topic, batch([bytes(500)])) == (0, 0)


def bomb() -> bytes:
    """One record of a gibibyte of zeros, which zstd makes small."""
    size = 1 << 30
    chunk = bytes(1 << 22)
    head = b"\x00" + wire.varint(0) + wire.varint(0) + wire.varint(1) + b"k" + wire.varint(size)
    record_size = len(head) + size + 1
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    parts = [compressor.compress(wire.varint(record_size) + head)]
    parts += [compressor.compress(chunk) for _ in range(size // len(chunk))]
    parts += [compressor.compress(wire.varint(0)), compressor.flush()]
    return batch([b""], records=b"".join(parts), attributes=ZSTD)


@pytest.mark.slow
@pytest.mark.parametrize("configs", [{"compression_type": "gzip"}, {"cleanup_policy": "compact"}, {}])
def test_a_decompression_bomb_is_stopped_at_the_cap(
    broker: Broker, connection: WireConnection, new_topic: TopicFactory, configs: dict[str, str]
) -> None:
    """A topic that makes the broker look inside refuses it; one that does not may keep it as it is."""
    if broker.name == "kafka":
        pytest.skip("Apache Kafka inflates it in its heap")
    topic = new_topic(**configs)
    explosive = bomb()
    assert len(explosive) < 200_000
    before_bytes = resident_bytes(broker)
    error, _ = connection.produce(topic, explosive)
    assert error in ({CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD} if configs else {0, INVALID_RECORD})
    assert connection.latest_offset(topic) == (0 if error else 1)
    assert resident_bytes(broker) - before_bytes < 300 << 20


def test_a_block_that_claims_gigabytes_takes_no_memory(
    broker: Broker, connection: WireConnection, new_topic: TopicFactory
) -> None:
    """CVE-2023-34455: a block of snappy says how large it becomes, bare or framed as Java does it."""
    if broker.name == "kafka":
        pytest.skip("what Apache Kafka does is its library's affair")
    topic = new_topic(cleanup_policy="compact")
    claim = b"\xff\xff\xff\xff\x07" + bytes(20)
    framed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 0x7FFF_FFFF)
    before_bytes = resident_bytes(broker)
    for block in (claim, framed + claim, framed[:-4] + struct.pack(">i", len(claim)) + claim):
        bad = batch([b"a"], records=block, attributes=SNAPPY)
        assert connection.produce(topic, bad)[0] in {CORRUPT_MESSAGE, INVALID_RECORD}
    assert connection.latest_offset(topic) == 0
    assert resident_bytes(broker) - before_bytes < 100 << 20


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(
    connection: WireConnection, new_topic: TopicFactory
) -> None:
    topic = new_topic(cleanup_policy="compact")
    assert connection.produce(topic, batch([b"no key"]))[0] == INVALID_RECORD
    assert connection.latest_offset(topic) == 0


def test_compressed_rubbish_is_refused_where_it_must_be_read(
    broker: Broker, connection: WireConnection, new_topic: TopicFactory
) -> None:
    topic = new_topic(cleanup_policy="compact")
    codes = {CORRUPT_MESSAGE, INVALID_RECORD} | ({UNKNOWN_SERVER_ERROR} if broker.name == "kafka" else set())
    for codec in (1, 2, 3, 4):
        rubbish = batch([b"a"], records=b"\x13\x37" * 50, attributes=codec)
        assert connection.produce(topic, rubbish)[0] in codes
    assert connection.latest_offset(topic) == 0
