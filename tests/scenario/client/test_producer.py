"""The producer before real brokers, ours and Apache Kafka: records, acknowledgements, batches, codecs."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.reading import read_topic, read_values

from barnabas.client import (
    ClientClosed,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    SerializationError,
    TopicPartition,
)
from barnabas.client.core.partitioner import partition_for_key
from barnabas.core.errors import (
    InvalidPartitions,
    InvalidTopicException,
    MessageTooLarge,
    RequestTimedOut,
)

NewName = Callable[[str], str]


async def test_a_record_arrives_as_it_was_sent(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    async with Producer(address) as producer:
        metadata = await producer.publish(
            topic, b"value", key=b"key", headers=[("a", b"1"), ("a", None)], timestamp_ms=1_700_000_000_123
        )
        assert metadata == RecordMetadata(topic, metadata.partition, 0, 1_700_000_000_123)
        assert metadata.topic_partition == TopicPartition(topic, metadata.partition)
    (record,) = (await read_topic(address, topic))[metadata.partition]
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1_700_000_000_123)
    assert record.headers == (("a", b"1"), ("a", None))


@pytest.mark.parametrize("how", ["plain", "headers", "serializer", "many"])
async def test_a_loop_of_sends_lets_full_batches_go(address: str, new_name: NewName, how: str) -> None:
    """`send` waits for nothing here: without a turn the whole buffer would fill before the first request."""
    topic, values = new_name("orders"), ["x" * 100] * 400
    settings = {"value_serializer": "string"} if how == "serializer" else {}
    async with Producer[Any, Any](address, linger_ms=60_000, batch_size=16_384, **settings) as producer:
        await producer.partitions_for(topic)
        turn = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        if how == "many":
            await producer.send_many(topic, [value.encode() for value in values], partition=0)
        else:
            for value in values:
                headers = {"a": "b"} if how == "headers" else None
                content = value if how == "serializer" else value.encode()
                await producer.send(topic, content, headers=headers, partition=0)
        assert turn.done()


@pytest.mark.parametrize(("time", "error"), [(2**63, ValueError), (-1, ValueError), ("x", TypeError)])
async def test_a_time_that_no_batch_can_hold_is_refused_alone(
    address: str, new_name: NewName, time: Any, error: type[Exception]
) -> None:
    topic = new_name("orders")
    async with Producer(address, linger_ms=50) as producer:
        for is_open in (False, True):
            if is_open:
                before = await producer.send(topic, b"before", partition=0)
            with pytest.raises(error):
                await producer.send(topic, b"bad", partition=0, timestamp_ms=time)
        after = await producer.send(topic, b"after", partition=0)
        assert [(await each).offset for each in (before, after)] == [0, 1]


async def test_records_keep_their_order_and_their_offsets(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    async with Producer(address, linger_ms=0, batch_size=1_000) as producer:
        deliveries = [await producer.send(topic, b"%d" % number) for number in range(2_000)]
        assert [(await each).offset for each in deliveries] == list(range(2_000))
        assert all(each.done() and each.exception() is None for each in deliveries)
        numbers = producer.metrics.snapshot()
    assert await read_values(address, topic) == [b"%d" % number for number in range(2_000)]
    assert numbers["producer_record_send_total"] == 2_000
    assert numbers["producer_buffer_available_bytes"] == producer.settings.buffer_memory


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_arrives(address: str, new_name: NewName, codec: str) -> None:
    topic = new_name("orders")
    async with Producer(address, compression_type=codec) as producer:
        await (await producer.send_many(topic, [b"x" * 100 + b"%d" % number for number in range(300)]))
    assert len(await read_values(address, topic)) == 300


@pytest.mark.parametrize("acks", ["0", "1", "all"])
async def test_every_kind_of_acknowledgement(address: str, new_name: NewName, acks: str) -> None:
    topic = new_name("orders")
    async with Producer(address, acks=acks) as producer:
        sent = [await producer.publish(topic, b"%d" % number) for number in range(10)]
        assert [each.offset for each in sent] == ([-1] * 10 if acks == "0" else list(range(10)))
    values: list[bytes | None] = []
    while len(values) < 10:  # acks=0 says nothing about the time
        values = await read_values(address, topic)
    assert values == [b"%d" % number for number in range(10)]


async def test_keys_stay_together_and_partitions_can_be_chosen(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    await _create(address, topic, 3)
    async with Producer(address) as producer:
        assert len(await producer.partitions_for(topic)) == 3
        keys = [b"k%d" % (number % 7) for number in range(100)]
        await (await producer.send_many(topic, range_of(100), keys=keys))
        assert (await producer.publish(topic, b"chosen", partition=2)).partition == 2
    for partition, records in (await read_topic(address, topic)).items():
        assert all(partition_for_key(each.key, 3) == partition for each in records if each.key is not None)


async def test_partitioners_of_an_application(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    await _create(address, topic, 3)
    async with Producer(address, partitioner_class=lambda _topic, _key, count: count - 1) as producer:
        assert (await producer.publish(topic, b"v")).partition == 2
    async with Producer(address, partitioner_class="round-robin") as producer:
        found = [(await producer.publish(topic, b"v", key=b"k")).partition for _ in range(6)]
        assert found == [0, 1, 2, 0, 1, 2]


async def test_serializers_and_interceptors(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    seen: list[Any] = []

    class Count(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(headers={"trace": "1"})

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
            seen.append(metadata or error)

    settings = {"key.serializer": "string", "value.serializer": "json", "bootstrap.servers": address}
    async with Producer(settings, interceptors=[Count()]) as producer:
        sent = await producer.publish(topic, {"a": 1}, key="k")
        with pytest.raises(SerializationError):
            await producer.send(topic, {"a": 1}, key=7)
    (record,) = await _records(address, topic)
    assert (record.key, record.value, record.headers) == (b"k", b'{"a":1}', (("trace", b"1"),))
    assert seen[0] == sent
    assert isinstance(seen[1], SerializationError)


async def test_a_batch_larger_than_the_topic_takes_is_split(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    await _create(address, topic, 1, {"max.message.bytes": "2000"})
    async with Producer(address, batch_size=50_000) as producer:
        values = [b"%03d" % number + b"x" * 300 for number in range(100)]
        found = await (await producer.send_many(topic, values))
        assert [each.offset for each in found] == list(range(100))
        assert producer.metrics.snapshot()["producer_batch_split_total"] >= 10
        with pytest.raises(MessageTooLarge):
            await producer.publish(topic, b"x" * 5_000)
        assert (await producer.publish(topic, b"last")).offset == 100
    assert [value and value[:3] for value in await read_values(address, topic)][:-1] == [
        b"%03d" % number for number in range(100)
    ]


async def test_faults_of_the_caller_are_named_at_once(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    async with Producer(address, max_block_ms=500) as producer:
        with pytest.raises(InvalidTopicException):
            await producer.send("no/such topic", b"v")
        with pytest.raises(SerializationError, match=r"value\.serializer"):
            await producer.send(topic, "text")
        with pytest.raises(MessageTooLarge, match=r"max\.request\.size"):
            await producer.send(topic, b"x" * 2_000_000)
        await producer.publish(topic, b"v")
        with pytest.raises(InvalidPartitions, match="no partition -1"):
            await producer.send(topic, b"v", partition=-1)
        with pytest.raises(RequestTimedOut, match=f"partition {topic}-9"):
            await producer.send(topic, b"v", partition=9)
        with pytest.raises(SerializationError, match="key is int"):
            await producer.send(topic, b"v", key=7)
    with pytest.raises(ClientClosed):
        await producer.send(topic, b"v")
    assert await read_values(address, topic) == [b"v"]


async def test_any_buffer_is_a_key_and_a_value(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    async with Producer(address) as producer:
        for kind in (bytes, bytearray, memoryview):
            await producer.publish(topic, kind(b"value"), key=kind(b"key"))
        numbers = array("i", [1, 2, 3])
        await producer.publish(topic, memoryview(numbers), key=memoryview(numbers))
    assert await read_values(address, topic) == [*[b"value"] * 3, numbers.tobytes()]


async def test_linger_collects_records_and_flush_ends_it(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    async with Producer(address, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        deliveries = [await producer.send(topic, b"v") for _ in range(10)]
        await producer.flush()
        assert all(each.done() for each in deliveries)
        assert producer.metrics.snapshot()["producer_batch_total"] == 1
        left = await producer.send(topic, b"v")
    assert left.result().offset == 10


async def test_callbacks_and_gather(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    called: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with Producer(address) as producer:
        delivery = await producer.send(topic, b"v")
        delivery.add_done_callback(lambda done: called.set_result(done.result().offset))
        with pytest.raises(asyncio.InvalidStateError):
            delivery.result()
        assert await called == 0
        many = await producer.send_many(topic, range_of(3))
        assert len(many) == 3
        assert [each.offset for each in await asyncio.gather(*many)] == [1, 2, 3]
        assert many.done()


def range_of(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def _records(address: str, topic: str) -> list[Any]:
    return [record for records in (await read_topic(address, topic)).values() for record in records]


async def _create(address: str, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    from barnabas.client import Admin, NewTopic

    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, partitions, configs=configs or {})])


async def test_the_largest_record_does_not_depend_on_the_batch(address: str, new_name: NewName) -> None:
    """A large batch with room for it took a record above max.request.size, which failed later."""
    topic = new_name("orders")
    async with Producer(address, batch_size=100_000, max_request_size=20_000, linger_ms=50) as producer:
        first = await producer.send(topic, b"first")
        with pytest.raises(MessageTooLarge, match=r"max\.request\.size"):
            await producer.send(topic, b"x" * 30_000)
        assert (await first).offset == 0
