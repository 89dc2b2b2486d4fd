"""kafka-python: a pure Python client that negotiates its versions from the advertised ranges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.codec import has_lz4, has_snappy, has_zstd
from kafka.errors import MessageSizeTooLargeError

from tests.support.fixtures import TopicFactory

pytestmark = pytest.mark.client("kafka-python")

TIMEOUT_S = 60.0
CODECS = [
    None,
    "gzip",
    pytest.param("snappy", marks=pytest.mark.skipif(not has_snappy(), reason="needs python-snappy")),
    pytest.param("lz4", marks=pytest.mark.skipif(not has_lz4(), reason="lz4 is not installed")),
    pytest.param("zstd", marks=pytest.mark.skipif(not has_zstd(), reason="zstandard is not installed")),
]


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[KafkaConsumer]:
    receiver = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    yield receiver
    receiver.close()


def send(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    sender = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    try:
        futures = [sender.send(topic, value, partition=0) for value in values]
        return [future.get(TIMEOUT_S).offset for future in futures]
    finally:
        sender.close(TIMEOUT_S)


def read(receiver: KafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        answered = receiver.poll(timeout_ms=TIMEOUT_S * 1_000)
        assert answered, f"silence after {len(records)} of {count} records"
        records += [record for batch in answered.values() for record in batch]
    return records


@pytest.mark.feature("codec-{codec}")
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_goes_there_and_back(
    bootstrap: str, topic: str, consumer: KafkaConsumer, codec: str | None
) -> None:
    values = [f"{codec} {i} ".encode() * 20 for i in range(200)]
    assert send(bootstrap, topic, values, compression_type=codec, linger_ms=20) == list(range(200))
    consumer.assign([TopicPartition(topic, 0)])
    assert [(r.offset, r.value) for r in read(consumer, 200)] == list(enumerate(values))


@pytest.mark.feature("idempotence")
@pytest.mark.parametrize(("acks", "idempotence"), [(1, False), ("all", False), ("all", True)])
def test_acknowledged_offsets_are_the_stored_ones(
    bootstrap: str, topic: str, consumer: KafkaConsumer, acks: Any, idempotence: bool
) -> None:
    values = [b"%d" % i for i in range(300)]
    offsets = send(bootstrap, topic, values, acks=acks, enable_idempotence=idempotence)
    assert offsets == list(range(300))
    consumer.assign([TopicPartition(topic, 0)])
    assert [r.value for r in read(consumer, 300)] == values


def test_records_sent_with_no_acknowledgement_arrive(
    bootstrap: str, topic: str, consumer: KafkaConsumer
) -> None:
    send(bootstrap, topic, [b"%d" % i for i in range(50)], acks=0, enable_idempotence=False)
    consumer.assign([TopicPartition(topic, 0)])
    assert [r.value for r in read(consumer, 50)] == [b"%d" % i for i in range(50)]


@pytest.mark.feature("headers", "timestamps")
def test_keys_headers_nulls_and_timestamps_survive(
    bootstrap: str, topic: str, consumer: KafkaConsumer
) -> None:
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    headers = [("a", b"1"), ("a", b"2"), ("b", b"")]
    sender.send(topic, b"value", key=b"key", headers=headers, timestamp_ms=1_234_567_890_123)
    sender.send(topic, None, key=b"tombstone")
    sender.flush(TIMEOUT_S)
    sender.close()
    consumer.assign([TopicPartition(topic, 0)])
    first, second = read(consumer, 2)
    assert (first.key, first.value, list(first.headers)) == (b"key", b"value", headers)
    assert (first.timestamp, first.timestamp_type) == (1_234_567_890_123, 0)
    assert (second.key, second.value) == (b"tombstone", None)


def test_large_messages_pass_and_too_large_ones_are_refused(
    bootstrap: str, new_topic: TopicFactory, consumer: KafkaConsumer
) -> None:
    topic = new_topic()
    values = [os.urandom(900_000) for _ in range(3)]
    assert send(bootstrap, topic, values) == [0, 1, 2]
    consumer.assign([TopicPartition(topic, 0)])
    assert [r.value for r in read(consumer, 3)] == values
    with pytest.raises(MessageSizeTooLargeError):
        send(bootstrap, new_topic(max_message_bytes=5_000), [bytes(10_000)])


def test_ten_thousand_small_messages_keep_their_order(
    bootstrap: str, topic: str, consumer: KafkaConsumer
) -> None:
    values = [b"%d" % i for i in range(10_000)]
    assert send(bootstrap, topic, values, linger_ms=5) == list(range(10_000))
    consumer.assign([TopicPartition(topic, 0)])
    assert [r.value for r in read(consumer, 10_000)] == values


@pytest.mark.feature("assign", "offsets-for-times", "list-offsets")
def test_consumers_seek_by_offset_by_time_and_to_both_ends(
    bootstrap: str, topic: str, consumer: KafkaConsumer
) -> None:
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    for i in range(20):
        sender.send(topic, b"%d" % i, timestamp_ms=1_000_000 + 10 * i).get(TIMEOUT_S)
    sender.close()
    partition = TopicPartition(topic, 0)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 20}
    found = consumer.offsets_for_times({partition: 1_000_055})[partition]
    assert (found.offset, found.timestamp) == (6, 1_000_060)
    assert consumer.offsets_for_times({partition: 9_000_000})[partition] is None
    consumer.assign([partition])
    consumer.seek(partition, found.offset)
    assert [r.value for r in read(consumer, 14)] == [b"%d" % i for i in range(6, 20)]
    consumer.seek_to_beginning(partition)
    assert consumer.position(partition) == 0
    assert len(read(consumer, 20)) == 20
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 20
    assert consumer.highwater(partition) == 20
