"""aiokafka: an asyncio client that speaks old versions of several requests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError, for_code

from tests.support.broker import Broker
from tests.support.fixtures import TopicFactory

pytestmark = pytest.mark.client("aiokafka")

TIMEOUT_MS = 60_000


@pytest_asyncio.fixture
async def consumer(bootstrap: str) -> AsyncIterator[AIOKafkaConsumer]:
    receiver = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest_asyncio.fixture
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    yield client
    await client.close()


async def send(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as sender:
        futures = [await sender.send(topic, value, partition=0) for value in values]
        return [(await future).offset for future in futures]


async def read(receiver: AIOKafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        answered = await receiver.getmany(timeout_ms=TIMEOUT_MS)
        assert answered, f"silence after {len(records)} of {count} records"
        records += [record for batch in answered.values() for record in batch]
    return records


@pytest.mark.feature("codec-{codec}")
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_goes_there_and_back(
    bootstrap: str, topic: str, consumer: AIOKafkaConsumer, codec: str | None
) -> None:
    values = [f"{codec} {i} ".encode() * 20 for i in range(200)]
    assert await send(bootstrap, topic, values, compression_type=codec, linger_ms=20) == list(range(200))
    consumer.assign([TopicPartition(topic, 0)])
    assert [(r.offset, r.value) for r in await read(consumer, 200)] == list(enumerate(values))


@pytest.mark.feature("idempotence")
@pytest.mark.parametrize("settings", [{"acks": 1}, {"acks": "all"}, {"enable_idempotence": True}])
async def test_acknowledged_offsets_are_the_stored_ones(
    bootstrap: str, topic: str, consumer: AIOKafkaConsumer, settings: dict[str, Any]
) -> None:
    values = [b"%d" % i for i in range(300)]
    assert await send(bootstrap, topic, values, **settings) == list(range(300))
    consumer.assign([TopicPartition(topic, 0)])
    assert [r.value for r in await read(consumer, 300)] == values


async def test_records_sent_with_no_acknowledgement_arrive(
    bootstrap: str, topic: str, consumer: AIOKafkaConsumer
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=0) as sender:
        for i in range(50):
            await sender.send(topic, b"%d" % i, partition=0)
    consumer.assign([TopicPartition(topic, 0)])
    assert [r.value for r in await read(consumer, 50)] == [b"%d" % i for i in range(50)]


@pytest.mark.feature("headers", "timestamps")
async def test_keys_headers_nulls_and_timestamps_survive(
    bootstrap: str, topic: str, consumer: AIOKafkaConsumer
) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("b", b"")]
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as sender:
        await sender.send_and_wait(topic, b"value", b"key", headers=headers, timestamp_ms=1_234_567_890_123)
        await sender.send_and_wait(topic, None, b"tombstone")
    consumer.assign([TopicPartition(topic, 0)])
    first, second = await read(consumer, 2)
    assert (first.key, first.value, list(first.headers)) == (b"key", b"value", headers)
    assert (first.timestamp, first.timestamp_type) == (1_234_567_890_123, 0)
    assert (second.key, second.value) == (b"tombstone", None)


async def test_large_messages_pass_and_too_large_ones_are_refused(
    bootstrap: str, new_topic: TopicFactory, consumer: AIOKafkaConsumer
) -> None:
    topic = new_topic()
    values = [os.urandom(900_000) for _ in range(3)]
    assert await send(bootstrap, topic, values) == [0, 1, 2]
    consumer.assign([TopicPartition(topic, 0)])
    assert [r.value for r in await read(consumer, 3)] == values
    with pytest.raises(MessageSizeTooLargeError):
        await send(bootstrap, new_topic(max_message_bytes=5_000), [bytes(10_000)])


async def test_ten_thousand_small_messages_keep_their_order(
    bootstrap: str, topic: str, consumer: AIOKafkaConsumer
) -> None:
    values = [b"%d" % i for i in range(10_000)]
    assert await send(bootstrap, topic, values) == list(range(10_000))
    consumer.assign([TopicPartition(topic, 0)])
    assert [r.value for r in await read(consumer, 10_000)] == values


@pytest.mark.feature("assign", "offsets-for-times", "list-offsets")
async def test_consumers_seek_by_offset_by_time_and_to_both_ends(
    bootstrap: str, topic: str, consumer: AIOKafkaConsumer
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as sender:
        for i in range(20):
            await sender.send_and_wait(topic, b"%d" % i, timestamp_ms=1_000_000 + 10 * i)
    partition = TopicPartition(topic, 0)
    assert await consumer.beginning_offsets([partition]) == {partition: 0}
    assert await consumer.end_offsets([partition]) == {partition: 20}
    found = (await consumer.offsets_for_times({partition: 1_000_055}))[partition]
    assert (found.offset, found.timestamp) == (6, 1_000_060)
    assert (await consumer.offsets_for_times({partition: 9_000_000}))[partition] is None
    consumer.assign([partition])
    consumer.seek(partition, 6)
    assert [r.value for r in await read(consumer, 14)] == [b"%d" % i for i in range(6, 20)]
    await consumer.seek_to_beginning(partition)
    assert len(await read(consumer, 20)) == 20
    await consumer.seek_to_end(partition)
    assert await consumer.position(partition) == 20
    assert consumer.highwater(partition) == 20


@pytest.mark.feature("connect", "create-topic", "describe-topic", "delete-topic")
async def test_topics_live_and_die_by_the_admin_client(admin: AIOKafkaAdminClient, broker: Broker) -> None:
    new = NewTopic("aio.life", 2, 1, topic_configs={"retention.ms": "4242"})
    created = await admin.create_topics([new])
    assert created.topic_errors[0][1] == 0
    again = await admin.create_topics([new])
    assert for_code(again.topic_errors[0][1]) is TopicAlreadyExistsError
    assert "aio.life" in await admin.list_topics()
    (described,) = await admin.describe_topics(["aio.life"])
    assert len(described["partitions"]) == 2
    (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "aio.life")])
    values = {row[0]: row[1] for row in configs.resources[0][4]}
    assert values["retention.ms"] == "4242"
    more = await admin.create_partitions({"aio.life": NewPartitions(3)})
    assert more.topic_errors[0][1] == 0
    cluster = await admin.describe_cluster()
    assert [(b["host"], b["port"]) for b in cluster["brokers"]] == [(broker.host, broker.port)]
    deleted = await admin.delete_topics(["aio.life"])
    assert deleted.topic_error_codes[0][1] == 0


@pytest.mark.feature("delete-records")
async def test_records_are_deleted(admin: AIOKafkaAdminClient, bootstrap: str, topic: str) -> None:
    await send(bootstrap, topic, [b"%d" % i for i in range(10)])
    partition = TopicPartition(topic, 0)
    assert await admin.delete_records({partition: RecordsToDelete(before_offset=6)}) == {partition: 6}
