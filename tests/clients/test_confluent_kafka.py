"""librdkafka through confluent-kafka: produce and consume with assigned partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.fixtures import TopicFactory
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.client("confluent-kafka")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
FLUSH_TIMEOUT_S = 60.0


class Deliveries:
    """Delivery report of each record, in order of arrival."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.messages.append(message)
        else:
            self.errors.append(error)


def producer(bootstrap: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}})


def produce_all(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> Deliveries:
    deliveries = Deliveries()
    sender = producer(bootstrap, **settings)
    for value in values:
        sender.produce(topic, value, partition=0, on_delivery=deliveries)
        sender.poll(0)
    assert sender.flush(FLUSH_TIMEOUT_S) == 0, "records left unsent"
    return deliveries


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    receiver = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "assigned-only",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
        }
    )
    yield receiver
    receiver.close()


def read_to_end(receiver: Consumer, topic: str, offset: int = OFFSET_BEGINNING) -> list[Message]:
    receiver.assign([TopicPartition(topic, 0, offset)])
    messages: list[Message] = []
    while True:
        message = receiver.poll(60.0)
        assert message is not None, f"neither a record nor the end after {len(messages)} records"
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            return messages
        else:
            raise KafkaException(message.error())


@pytest.mark.feature("codec-{codec}")
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_goes_there_and_back(bootstrap: str, topic: str, consumer: Consumer, codec: str) -> None:
    values = [f"{codec} {i} ".encode() * 20 for i in range(500)]
    deliveries = produce_all(bootstrap, topic, values, compression_type=codec, linger_ms=20)
    assert not deliveries.errors
    assert [m.offset() for m in deliveries.messages] == list(range(500))
    read = read_to_end(consumer, topic)
    assert [m.value() for m in read] == values
    assert [m.offset() for m in read] == list(range(500))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_stores_the_records(
    bootstrap: str, topic: str, consumer: Consumer, acks: str
) -> None:
    values = [f"{i}".encode() for i in range(200)]
    deliveries = produce_all(bootstrap, topic, values, acks=acks)
    assert not deliveries.errors
    assert len(deliveries.messages) == 200
    sentinel = produce_all(bootstrap, topic, [b"sentinel"], acks="all")
    assert not sentinel.errors
    read: list[bytes] = []
    while len(read) < 201:
        read = [m.value() or b"" for m in read_to_end(consumer, topic)]
    assert sorted(read) == sorted([*values, b"sentinel"])


@pytest.mark.feature("headers", "timestamps")
def test_keys_headers_nulls_and_timestamps_survive(bootstrap: str, topic: str, consumer: Consumer) -> None:
    sender = producer(bootstrap)
    headers: list[tuple[str, str | bytes | None]] = [
        ("trace", b"\x00\xff"),
        ("trace", b"again"),
        ("empty", b""),
        ("null", None),
    ]
    sender.produce(topic, b"value", key=b"key", headers=headers, timestamp=1_234_567_890_123)
    sender.produce(topic, None, key=b"tombstone", timestamp=1_234_567_890_124)
    sender.produce(topic, b"", key=None, timestamp=1_234_567_890_125)
    assert sender.flush(FLUSH_TIMEOUT_S) == 0
    first, second, third = read_to_end(consumer, topic)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1_234_567_890_123)
    assert (second.key(), second.value(), second.headers()) == (b"tombstone", None, None)
    assert (third.key(), third.value()) == (None, b"")


def test_log_append_time_replaces_the_timestamp(
    bootstrap: str, new_topic: TopicFactory, consumer: Consumer
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    sender = producer(bootstrap)
    deliveries = Deliveries()
    sender.produce(topic, b"value", timestamp=1, on_delivery=deliveries)
    assert sender.flush(FLUSH_TIMEOUT_S) == 0
    (read,) = read_to_end(consumer, topic)
    kind, stamp = read.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert stamp > 1_600_000_000_000
    assert deliveries.messages[0].timestamp() == (TIMESTAMP_LOG_APPEND_TIME, stamp)


@pytest.mark.feature("idempotence")
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_an_idempotent_producer_writes_everything_once_and_in_order(
    bootstrap: str, topic: str, consumer: Consumer, codec: str
) -> None:
    values = [f"{i}".encode() for i in range(3_000)]
    settings = {"enable_idempotence": True, "batch_num_messages": 50, "compression_type": codec}
    deliveries = produce_all(bootstrap, topic, values, **settings)
    assert not deliveries.errors
    assert [m.offset() for m in deliveries.messages] == list(range(3_000))
    assert [m.value() for m in read_to_end(consumer, topic)] == values


def test_ten_thousand_small_messages_keep_their_order(bootstrap: str, topic: str, consumer: Consumer) -> None:
    values = [b"%d" % i for i in range(10_000)]
    assert not produce_all(bootstrap, topic, values).errors
    read = read_to_end(consumer, topic)
    assert [m.value() for m in read] == values
    assert [m.offset() for m in read] == list(range(10_000))


def test_messages_of_almost_a_megabyte_pass(bootstrap: str, topic: str, consumer: Consumer) -> None:
    values = [os.urandom(900_000) for _ in range(8)]
    assert not produce_all(bootstrap, topic, values).errors
    assert [m.value() for m in read_to_end(consumer, topic)] == values


def test_a_message_past_the_topics_limit_is_refused_and_the_next_one_passes(
    bootstrap: str, new_topic: TopicFactory, consumer: Consumer
) -> None:
    topic = new_topic(max_message_bytes=10_000)
    refused = produce_all(bootstrap, topic, [bytes(20_000)])
    assert [error.code() for error in refused.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert not produce_all(bootstrap, topic, [b"small"]).errors
    assert [m.value() for m in read_to_end(consumer, topic)] == [b"small"]


def test_records_with_no_partition_spread_and_keys_stay_together(
    bootstrap: str, new_topic: TopicFactory, consumer: Consumer
) -> None:
    topic = new_topic(partitions=4)
    deliveries = Deliveries()
    sender = producer(bootstrap)
    for i in range(400):
        sender.produce(topic, b"%d" % i, key=b"key-%d" % (i % 20), on_delivery=deliveries)
    assert sender.flush(FLUSH_TIMEOUT_S) == 0
    homes: dict[bytes | None, set[int | None]] = {}
    for message in deliveries.messages:
        homes.setdefault(message.key(), set()).add(message.partition())
    assert len(homes) == 20
    assert all(len(partitions) == 1 for partitions in homes.values())
    sizes = [
        consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=PATIENCE_S)[1] for p in range(4)
    ]
    assert sum(sizes) == 400
    assert sum(size > 0 for size in sizes) > 1


@pytest.mark.feature("list-offsets")
def test_watermarks_tell_where_the_log_begins_and_ends(
    bootstrap: str, topic: str, consumer: Consumer
) -> None:
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S) == (0, 0)
    produce_all(bootstrap, topic, [b"a", b"b", b"c"])
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S) == (0, 3)


@pytest.mark.feature("offsets-for-times")
def test_offsets_for_times_find_the_first_record_not_older(
    bootstrap: str, topic: str, consumer: Consumer
) -> None:
    for i in range(10):
        sender = producer(bootstrap, linger_ms=0)
        sender.produce(topic, b"%d" % i, timestamp=1_000_000 + 10 * i)
        assert sender.flush(FLUSH_TIMEOUT_S) == 0
    asked = {1_000_000: 0, 1_000_001: 1, 1_000_045: 5, 1_000_090: 9, 999: 0}
    for timestamp, offset in asked.items():
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=PATIENCE_S)
        assert (timestamp, found.offset) == (timestamp, offset)
    (beyond,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1_000_091)], timeout=PATIENCE_S)
    assert beyond.offset == OFFSET_END


def test_a_time_inside_a_batch_finds_the_record_inside_it(
    bootstrap: str, topic: str, consumer: Consumer
) -> None:
    sender = producer(bootstrap, linger_ms=500, compression_type="gzip")
    for i in range(10):
        sender.produce(topic, b"%d" % i, timestamp=2_000_000 + 10 * i)
    assert sender.flush(FLUSH_TIMEOUT_S) == 0
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 2_000_055)], timeout=PATIENCE_S)
    assert found.offset == 6


def test_consumers_start_where_they_are_told(bootstrap: str, topic: str, consumer: Consumer) -> None:
    values = [b"%d" % i for i in range(100)]
    produce_all(bootstrap, topic, values)
    assert [m.value() for m in read_to_end(consumer, topic, OFFSET_BEGINNING)] == values
    assert [m.value() for m in read_to_end(consumer, topic, 60)] == values[60:]
    assert read_to_end(consumer, topic, OFFSET_END) == []


def test_a_seek_goes_back_into_the_middle_of_a_batch(bootstrap: str, topic: str, consumer: Consumer) -> None:
    produce_all(bootstrap, topic, [b"%d" % i for i in range(100)], linger_ms=200)
    assert len(read_to_end(consumer, topic)) == 100
    consumer.seek(TopicPartition(topic, 0, 37))
    message = consumer.poll(60.0)
    assert message is not None
    assert (message.offset(), message.value()) == (37, b"37")


def test_an_offset_out_of_range_is_reset_as_the_consumer_wishes(bootstrap: str, topic: str) -> None:
    produce_all(bootstrap, topic, [b"a", b"b"])
    settings = {"bootstrap.servers": bootstrap, "group.id": "assigned-only", "enable.auto.commit": False}
    receiver = Consumer({**settings, "auto.offset.reset": "error"})
    try:
        receiver.assign([TopicPartition(topic, 0, 1_000)])
        message = receiver.poll(60.0)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        receiver.close()
    receiver = Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        receiver.assign([TopicPartition(topic, 0, 1_000)])
        message = receiver.poll(60.0)
        assert message is not None
        assert (message.error(), message.offset()) == (None, 0)
    finally:
        receiver.close()


def test_a_waiting_consumer_gets_a_record_that_arrives_later(
    bootstrap: str, topic: str, consumer: Consumer
) -> None:
    assert read_to_end(consumer, topic) == []
    produce_all(bootstrap, topic, [b"late"])
    message = consumer.poll(60.0)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"late")


@pytest.mark.feature("assign")
def test_one_consumer_reads_many_partitions(
    bootstrap: str, new_topic: TopicFactory, consumer: Consumer
) -> None:
    topic = new_topic(partitions=8)
    sender = producer(bootstrap)
    for i in range(800):
        sender.produce(topic, b"%d" % i, partition=i % 8)
    assert sender.flush(FLUSH_TIMEOUT_S) == 0
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(8)])
    read: dict[int, list[int]] = {p: [] for p in range(8)}
    while sum(map(len, read.values())) < 800:
        message = consumer.poll(60.0)
        assert message is not None
        if message.error() is None:
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            read[partition].append(int(value))
    assert read == {p: list(range(p, 800, 8)) for p in range(8)}


def test_a_topic_is_made_by_the_first_record_sent_to_it(bootstrap: str, consumer: Consumer) -> None:
    topic = f"auto-created-{os.getpid()}"
    assert not produce_all(bootstrap, topic, [b"first"], allow_auto_create_topics=True).errors
    assert [m.value() for m in read_to_end(consumer, topic)] == [b"first"]
