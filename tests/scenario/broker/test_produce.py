"""Produce responses, partition by partition."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicException,
    NetworkException,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from barnabas.core.ids import INTERNAL_TOPICS
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from tests.support.in_process import BY_NAME_PRODUCE, InProcessBroker, in_process_broker, produce_request
from tests.support.wire import batch


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(tmp_path) as started:
        assert await started.create_topic("topic", 2) == 0
        yield started


def request_of(acks: int, *parts: tuple[str, int, bytes | None]) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])
            for topic, index, records in parts
        ],
    )


async def make_internal_topics(broker: InProcessBroker) -> None:
    for kind in (0, 1):
        await broker.ask(FindCoordinatorRequest(key="any", key_type=kind), FindCoordinatorResponse, 1)


async def test_each_partition_gets_its_own_answer(broker: InProcessBroker) -> None:
    await make_internal_topics(broker)
    request = request_of(
        -1,
        ("topic", 0, batch([b"good"])),
        ("topic", 1, batch([b"bad"], crc=1)),
        ("topic", 2, batch()),
        ("unknown", 0, batch()),
        ("__consumer_offsets", 0, batch()),
    )
    answer = await broker.ask(request, ProduceResponse, BY_NAME_PRODUCE)
    codes = [each.partition_responses[0].error_code for each in answer.responses]
    assert codes == [
        0,
        CorruptMessage.code,
        UnknownTopicOrPartition.code,
        UnknownTopicOrPartition.code,
        InvalidTopicException.code,
    ]
    assert await broker.read_all("topic", 0) == [b"good"]
    assert await broker.read_all("topic", 1) == []
    assert answer.throttle_time_ms == 0, "the field is there, and nobody is throttled"


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
async def test_zstd_is_taken_from_producers_that_readers_of_their_age_understand(
    broker: InProcessBroker, codec: Codec
) -> None:
    records = bytes(build_batch([(None, b"value", (), 1_700_000_000_000)], codec=codec))
    codes = {}
    for version in range(3, 8):
        answer = await broker.ask(request_of(-1, ("topic", 0, records)), ProduceResponse, version)
        codes[version] = answer.responses[0].partition_responses[0].error_code
    refused = UnsupportedCompressionType.code if codec is Codec.ZSTD else 0
    assert codes == dict.fromkeys(range(3, 7), refused) | {7: 0}
    assert len(await broker.read_all("topic", 0)) == list(codes.values()).count(0)


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
async def test_clients_cannot_write_internal_topics(broker: InProcessBroker, topic: str) -> None:
    await make_internal_topics(broker)
    refused = await broker.produce(topic)
    assert refused.error_code == InvalidTopicException.code
    assert refused.error_message is not None
    assert "internal" in refused.error_message


@pytest.mark.parametrize("acks", [-2, 2, 127])
async def test_any_other_acks_are_refused_for_every_partition(broker: InProcessBroker, acks: int) -> None:
    request = request_of(acks, ("topic", 0, batch()), ("topic", 1, batch()))
    answer = await broker.ask(request, ProduceResponse, BY_NAME_PRODUCE)
    codes = {each.partition_responses[0].error_code for each in answer.responses}
    assert codes == {InvalidRequiredAcks.code}
    assert await broker.read_all("topic") == []


async def test_an_unknown_topic_is_answered_before_acks_and_records(broker: InProcessBroker) -> None:
    """The order in which Kafka looks at a request."""
    answer = await broker.ask(
        request_of(7, ("nowhere", 0, batch()), ("topic", 0, None)), ProduceResponse, BY_NAME_PRODUCE
    )
    codes = [each.partition_responses[0].error_code for each in answer.responses]
    assert codes == [UnknownTopicOrPartition.code, InvalidRecord.code]


@pytest.mark.parametrize(
    ("topic", "acks", "refused"),
    [("topic", 7, InvalidRequiredAcks.code), ("__consumer_offsets", 1, InvalidTopicException.code)],
)
async def test_a_malformed_batch_is_answered_before_acks_and_internal_topics(
    broker: InProcessBroker, topic: str, acks: int, refused: int
) -> None:
    """The order in which Kafka looks at a request."""
    await make_internal_topics(broker)
    parts = [(0, batch()), (0, b"4"), (0, batch() + batch()), (999, batch())]
    codes = []
    for index, records in parts:
        answer = await broker.ask(request_of(acks, (topic, index, records)), ProduceResponse, BY_NAME_PRODUCE)
        codes.append(answer.responses[0].partition_responses[0].error_code)
    assert codes == [refused, InvalidRecord.code, InvalidRecord.code, UnknownTopicOrPartition.code]


async def test_a_topic_with_fewer_replicas_than_its_minimum_needs_all_that_it_has(
    broker: InProcessBroker,
) -> None:
    assert await broker.create_topic("careful", min_insync_replicas=2) == 0
    assert (await broker.produce("careful", acks=-1)).error_code == 0
    assert (await broker.produce("careful", acks=1)).error_code == 0
    assert len(await broker.read_all("careful")) == 2


async def test_a_failure_with_acks_0_closes_the_connection_and_no_other(broker: InProcessBroker) -> None:
    unlucky = await Channel.connect(broker.address)
    await unlucky.send_unanswered(produce_request("topic", partition=9, acks=0), version_max=BY_NAME_PRODUCE)
    asked = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name="topic", partitions=[ListOffsetsPartition(partition_index=0)])]
    )
    with pytest.raises(NetworkException, match="closed the connection"):
        await unlucky.send(asked, ListOffsetsResponse)
    assert (await broker.produce("topic")).error_code == 0
    unlucky.close()
