"""Writing and reading records: batches, sequences, retries, positions, transactions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any

import pytest
from kafka.partitioner.default import murmur2 as kafka_python_murmur2
from tests.support.manual_time import ManualClock
from tests.support.plain_consumer import Consumer, list_offsets
from tests.support.plain_producer import OutgoingRecord, Producer
from tests.support.scripted_broker import SILENCE, Answer, Script, ScriptedBroker, scripted_broker
from tests.support.wire import content

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.partitioner import murmur2, partition_for_key
from barnabas.client.core.retries import UNKNOWN_TOPIC_TIMEOUT_MS
from barnabas.core.clock import SystemClock
from barnabas.core.errors import (
    CorruptMessage,
    InvalidPartitions,
    MessageTooLarge,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.offset_numbers import EARLIEST
from barnabas.records.batch import read_batch
from barnabas.records.builder import BatchBuilder, build_end_transaction_marker
from barnabas.records.compression import Codec
from barnabas.records.record import EndTransactionMarker, iterate_records

JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def one_topic(broker: ScriptedBroker, partitions: int = 1, at_first: Sequence[int] = ()) -> None:
    """`t`, all of it led by `broker`; to the first questions it has other numbers of partitions."""
    numbers = chain(at_first, repeat(partitions))

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        rows = [
            MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=4)
            for index in range(next(numbers))
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)],
            topics=[MetadataResponseTopic(name="t", partitions=rows)],
        )

    broker.script[ApiKey.METADATA] = metadata


def cluster_of(broker: ScriptedBroker) -> ClusterClient:
    return ClusterClient([broker.address], clock=SystemClock(), randomness=random.Random(1))


def accept(request: ProduceRequest, version: int) -> ProduceResponse:
    return produced(request)


def produced(request: ProduceRequest, codes: dict[int, int] | None = None) -> ProduceResponse:
    rows = [
        PartitionProduceResponse(index=row.index, error_code=(codes or {}).get(row.index, 0))
        for row in request.topic_data[0].partition_data
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])


def batches_in(requests: Sequence[ProduceRequest]) -> list[tuple[int, Any]]:
    return [
        (row.index, read_batch(content(row.records)))
        for request in requests
        for row in request.topic_data[0].partition_data
    ]


@pytest.mark.parametrize("key", list(JAVA_HASHES))
def test_the_hash_of_a_key_is_javas(key: bytes) -> None:
    value = murmur2(key)
    assert (value - (1 << 32) if value & 0x80000000 else value) == JAVA_HASHES[key]


def test_the_hash_agrees_with_another_implementation_at_every_length() -> None:
    chance = random.Random(7)
    for length in range(70):
        data = chance.randbytes(length)
        assert murmur2(data) == kafka_python_murmur2(data) & 0xFFFFFFFF
        assert 0 <= partition_for_key(data, 7) < 7


@pytest.mark.parametrize("codec", list(Codec))
async def test_records_arrive_as_they_were_given(codec: Codec) -> None:
    async with scripted_broker({ApiKey.PRODUCE: accept}) as broker:
        one_topic(broker)
        async with cluster_of(broker) as cluster:
            records = [
                OutgoingRecord(b"k", b"v", [("h", b"1")], timestamp_ms=1_000),
                OutgoingRecord(None, None, timestamp_ms=999),
            ]
            assert await Producer(cluster, codec=codec).send("t", records) == 2
        ((_, batch),) = batches_in(broker.asked(ProduceRequest))
        assert batch.codec is codec
        assert batch.is_valid_crc
        assert [record[1:] for record in iterate_records(batch)] == [
            (1_000, b"k", b"v", (("h", b"1"),)),
            (999, None, None, ()),
        ]


async def test_keys_stay_together_and_keyless_records_fill_one_partition_a_request() -> None:
    async with scripted_broker({ApiKey.PRODUCE: accept}) as broker:
        one_topic(broker, partitions=5)
        async with cluster_of(broker) as cluster:
            producer = Producer(cluster)
            await producer.send("t", [OutgoingRecord(b"key-%d" % n, b"v") for n in range(40)])
            await producer.send("t", [OutgoingRecord(None, b"v")] * 3)
            await producer.send("t", [OutgoingRecord(None, b"v")] * 3)
            await producer.send("t", [OutgoingRecord(b"k", b"v", partition=4)])
            with pytest.raises(InvalidPartitions, match="partitions 0 to 4, not 5"):
                await producer.send("t", [OutgoingRecord(b"k", b"v", partition=5)])
        keyed, first, second, fixed = broker.asked(ProduceRequest)
        for partition, batch in batches_in([keyed]):
            for record in iterate_records(batch):
                assert record.key is not None
                assert partition_for_key(record.key, 5) == partition
        ((one, _),), ((other, _),) = batches_in([first]), batches_in([second])
        assert one != other
        assert [partition for partition, _ in batches_in([fixed])] == [4]


async def test_a_large_send_is_cut_into_batches_in_order() -> None:
    async with scripted_broker({ApiKey.PRODUCE: accept}) as broker:
        one_topic(broker)
        async with cluster_of(broker) as cluster:
            values = [b"%04d" % number + bytes(200) for number in range(100)]
            producer = Producer(cluster, batch_bytes=2_000)
            assert await producer.send("t", [OutgoingRecord(None, value) for value in values]) == 100
        sent = [batch for _, batch in batches_in(broker.asked(ProduceRequest))]
        assert len(sent) > 5
        assert [record.value for batch in sent for record in iterate_records(batch)] == values


async def test_only_what_failed_is_sent_again_and_unchanged() -> None:
    answers = iter([{1: 6}, {1: 6}, {}])
    identity = InitProducerIdResponse(producer_id=77, producer_epoch=3)
    script: Script = {
        ApiKey.PRODUCE: lambda request, _version: produced(request, next(answers)),
        ApiKey.INIT_PRODUCER_ID: lambda _request, _version: identity,
    }
    async with scripted_broker(script) as broker:
        one_topic(broker, partitions=2)
        async with cluster_of(broker) as cluster:
            producer = Producer(cluster)
            await producer.send("t", [OutgoingRecord(None, b"v", partition=n % 2) for n in range(6)])
            answers = iter([{}])
            await producer.send("t", [OutgoingRecord(None, b"v", partition=1)])
        requests = broker.asked(ProduceRequest)
        assert [[index for index, _ in batches_in([each])] for each in requests] == [[0, 1], [1], [1], [1]]
        of_one = [batch for index, batch in batches_in(requests) if index == 1]
        assert [batch.base_sequence for batch in of_one] == [0, 0, 0, 3]
        assert {(batch.producer_id, batch.producer_epoch) for batch in of_one} == {(77, 3)}


async def test_a_duplicate_is_a_success_and_a_refusal_is_final() -> None:
    answers = iter([{0: 46}, {0: 10}])
    script: Script = {ApiKey.PRODUCE: lambda request, _version: produced(request, next(answers))}
    async with scripted_broker(script) as broker:
        one_topic(broker)
        async with cluster_of(broker) as cluster:
            producer = Producer(cluster)
            assert await producer.send("t", [OutgoingRecord(None, b"v")]) == 1
            with pytest.raises(MessageTooLarge):
                await producer.send("t", [OutgoingRecord(None, b"v")])
        assert len(broker.asked(ProduceRequest)) == 2
        assert (
            read_batch(broker.asked(ProduceRequest)[0].topic_data[0].partition_data[0].records).producer_id
            == -1
        )


async def test_acks_zero_waits_for_no_answer() -> None:
    def swallow(request: ProduceRequest, version: int) -> Answer:
        return SILENCE

    async with scripted_broker({ApiKey.PRODUCE: swallow}) as broker:
        one_topic(broker)
        async with cluster_of(broker) as cluster:
            assert await Producer(cluster, acks=0).send("t", [OutgoingRecord(None, b"v")]) == 1
            await cluster.refresh(())  # answered behind it on the same connection
        assert [request.acks for request in broker.asked(ProduceRequest)] == [0]


def batch_at(offset: int, *values: bytes, producer_id: int = -1, transactional: bool = False) -> bytes:
    builder = BatchBuilder(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        is_transactional=transactional,
    )
    for value in values:
        builder.append(None, value, timestamp=1)
    return bytes(builder.build())


def fetched(*rows: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=list(rows))])


async def test_records_before_the_position_are_dropped() -> None:
    answers = iter(
        [
            fetched(PartitionData(records=batch_at(10, b"a", b"b", b"c") + batch_at(13, b"d")[:-1])),
            fetched(PartitionData(records=batch_at(13, b"d"))),
        ]
    )
    async with scripted_broker({ApiKey.FETCH: lambda _request, _version: next(answers)}) as broker:
        one_topic(broker)
        async with cluster_of(broker) as cluster, Consumer(cluster, "t", {0: 11}) as consumer:
            assert [each.record.value for each in await consumer.poll()] == [b"b", b"c"]
            assert consumer.positions == {0: 13}
            assert [each.record.value for each in await consumer.poll()] == [b"d"]
        offsets = [request.topics[0].partitions[0].fetch_offset for request in broker.asked(FetchRequest)]
        assert offsets == [11, 13]
        assert broker.asked(FetchRequest)[0].topics[0].partitions[0].current_leader_epoch == 4


@pytest.mark.parametrize(
    ("committed", "values"),
    [(True, [b"kept", b"plain", b"later"]), (False, [b"lost", b"kept", b"plain", b"later"])],
)
async def test_aborted_transactions_are_hidden_with_read_committed(
    committed: bool, values: list[bytes]
) -> None:
    abort = build_end_transaction_marker(
        EndTransactionMarker(is_commit=False, coordinator_epoch=0),
        producer_id=5, producer_epoch=0, base_offset=3, timestamp=1,
    )  # fmt: skip
    records = (
        batch_at(0, b"lost", producer_id=5, transactional=True)
        + batch_at(1, b"kept", producer_id=6, transactional=True)
        + batch_at(2, b"plain")
        + bytes(abort)
        + batch_at(4, b"later", producer_id=5, transactional=True)
    )
    row = PartitionData(
        records=records, aborted_transactions=[AbortedTransaction(producer_id=5, first_offset=0)]
    )
    async with scripted_broker({ApiKey.FETCH: lambda _request, _version: fetched(row)}) as broker:
        one_topic(broker)
        async with (
            cluster_of(broker) as cluster,
            Consumer(cluster, "t", {0: 0}, read_committed=committed) as consumer,
        ):
            assert [each.record.value for each in await consumer.poll()] == values
            assert consumer.positions == {0: 5}
        assert broker.asked(FetchRequest)[0].isolation_level == int(committed)


def beginning_at(offset: int) -> Callable[[ListOffsetsRequest, int], ListOffsetsResponse]:
    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        row = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])

    return answer


async def test_a_reader_overtaken_by_retention_goes_on_where_the_log_begins() -> None:
    answers = iter(
        [
            fetched(PartitionData(error_code=1)),  # as brokers answer: it does not say where the log begins
            fetched(PartitionData(error_code=6)),
            fetched(PartitionData(records=batch_at(50, b"a"))),
        ]
    )
    script: Script = {
        ApiKey.FETCH: lambda _request, _version: next(answers),
        ApiKey.LIST_OFFSETS: beginning_at(50),
    }
    async with scripted_broker(script) as broker:
        one_topic(broker)
        async with cluster_of(broker) as cluster, Consumer(cluster, "t", {0: 7}) as consumer:
            assert await consumer.poll() == []
            assert consumer.positions == {0: 50}
            assert await consumer.poll() == []
            assert [each.record.offset for each in await consumer.poll()] == [50]
        (asked,) = broker.asked(ListOffsetsRequest)
        assert asked.topics[0].partitions[0].timestamp == EARLIEST
        assert len(broker.asked(MetadataRequest)) == 2


async def test_a_reader_goes_on_where_it_was_if_the_log_of_a_new_leader_begins_earlier() -> None:
    """As it may, when records were deleted and a replica has forgotten of it."""
    answers = iter([fetched(PartitionData(error_code=1)), fetched(PartitionData(records=batch_at(7, b"a")))])

    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        is_start = request.topics[0].partitions[0].timestamp == EARLIEST
        return beginning_at(3 if is_start else 8)(request, version)

    script: Script = {ApiKey.FETCH: lambda _request, _version: next(answers), ApiKey.LIST_OFFSETS: answer}
    async with scripted_broker(script) as broker:
        one_topic(broker)
        async with cluster_of(broker) as cluster, Consumer(cluster, "t", {0: 7}) as consumer:
            assert await consumer.poll() == []
            assert [each.record.offset for each in await consumer.poll()] == [7]
        assert len(broker.asked(MetadataRequest)) == 2, "who leads is asked again"


async def test_a_reader_behind_the_end_of_the_log_is_told() -> None:
    script: Script = {
        ApiKey.FETCH: lambda _request, _version: fetched(PartitionData(error_code=1)),
        ApiKey.LIST_OFFSETS: beginning_at(3),
    }
    async with scripted_broker(script) as broker:
        one_topic(broker)
        async with cluster_of(broker) as cluster, Consumer(cluster, "t", {0: 7}) as consumer:
            with pytest.raises(OffsetOutOfRange):
                await consumer.poll()


async def test_damaged_records_are_an_error_not_data() -> None:
    broken = bytearray(batch_at(0, b"aaaa"))
    broken[-2] ^= 1
    row = PartitionData(records=bytes(broken))
    async with scripted_broker({ApiKey.FETCH: lambda _request, _version: fetched(row)}) as broker:
        one_topic(broker)
        async with cluster_of(broker) as cluster, Consumer(cluster, "t", {0: 0}) as consumer:
            with pytest.raises(CorruptMessage):
                await consumer.poll()
            assert consumer.positions == {0: 0}


async def test_writer_and_reader_outlive_a_restart_of_the_broker() -> None:
    script: Script = {
        ApiKey.PRODUCE: accept,
        ApiKey.FETCH: lambda _request, _version: fetched(PartitionData(records=batch_at(0, b"a"))),
    }
    async with scripted_broker(script) as broker:
        one_topic(broker)
        port = broker.port
        cluster = cluster_of(broker)
        await cluster.__aenter__()
        producer = Producer(cluster)
        await producer.send("t", [OutgoingRecord(None, b"v")])
    consumer = Consumer(cluster, "t", {0: 0})
    writing = asyncio.create_task(producer.send("t", [OutgoingRecord(None, b"v")]))
    reading = asyncio.create_task(consumer.poll())
    await asyncio.sleep(0.1)  # both meet a closed door at least once
    assert not writing.done()
    async with scripted_broker(script, port=port) as broker:
        assert await writing == 1
        while not (records := await reading):
            reading = asyncio.create_task(consumer.poll())
        assert [each.record.value for each in records] == [b"a"]
        async with cluster, consumer:
            pass


async def test_offsets_are_asked_of_the_leaders() -> None:
    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        rows = [
            ListOffsetsPartitionResponse(partition_index=row.partition_index, offset=row.partition_index * 10)
            for row in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])

    async with scripted_broker({ApiKey.LIST_OFFSETS: answer}) as broker:
        one_topic(broker, partitions=3)
        async with cluster_of(broker) as cluster:
            assert await list_offsets(cluster, "t", [0, 2], EARLIEST) == {0: 0, 2: 20}


async def test_a_reader_looks_for_a_partition_that_a_broker_has_not_heard_of() -> None:
    script: Script = {
        ApiKey.FETCH: lambda _request, _version: fetched(
            PartitionData(partition_index=1, records=batch_at(7, b"a"))
        )
    }
    async with scripted_broker(script) as broker:
        one_topic(broker, partitions=2, at_first=[1, 1])
        async with cluster_of(broker) as cluster, Consumer(cluster, "t", {1: 7}) as consumer:
            found: list[int] = []
            while not found:
                found = [each.record.offset for each in await consumer.poll()]
            assert found == [7]


async def test_a_reader_of_a_partition_that_does_not_exist_is_told() -> None:
    async with scripted_broker({}) as broker:
        one_topic(broker)
        clock = ManualClock()
        cluster = ClusterClient([broker.address], clock=clock, randomness=random.Random(1))
        async with cluster, Consumer(cluster, "t", {1: 7}) as consumer:
            await consumer.poll()
            clock.advance(ms=UNKNOWN_TOPIC_TIMEOUT_MS)
            with pytest.raises(UnknownTopicOrPartition, match="t has no partition 1"):
                await consumer.poll()


async def test_a_batch_waits_for_a_broker_that_has_heard_of_its_partition() -> None:
    codes = iter([{1: 6}, {}])  # its leader has moved, and whoever is asked for the new one lags behind
    script: Script = {ApiKey.PRODUCE: lambda request, _version: produced(request, next(codes))}
    async with scripted_broker(script) as broker:
        one_topic(broker, partitions=2, at_first=[2, 1])
        async with cluster_of(broker) as cluster:
            await Producer(cluster).send("t", [OutgoingRecord(None, b"v", partition=1)])
        assert [row for row, _ in batches_in(broker.asked(ProduceRequest))] == [1, 1]
        assert len(broker.asked(MetadataRequest)) == 3
