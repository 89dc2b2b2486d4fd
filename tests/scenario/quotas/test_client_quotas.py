"""Clients above their quotas, on real sockets: answered at once, then not read for a while."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.client.admin.admin import Admin
from barnabas.client.aio.channel import Channel
from barnabas.core.errors import ThrottlingQuotaExceeded, UnknownTopicOrPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.testing.broker import run_broker
from tests.support.in_process import (
    BY_NAME_FETCH,
    BY_NAME_PRODUCE,
    InProcessBroker,
    fetch_request,
    in_process_broker,
    produce_request,
)
from tests.support.waiting import PATIENCE_S
from tests.support.wire import content

RECORD_BYTES = 20_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(tmp_path) as started:
        assert await started.create_topic("topic") == 0
        yield started


async def limit(broker: InProcessBroker, **quotas: float) -> None:
    """For every user that has no quota of its own."""
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type="user", entity_name=None)],
                ops=[OpData(key=key, value=float(int(value))) for key, value in quotas.items()],
            )
        ]
    )
    answer = await broker.ask(request, AlterClientQuotasResponse)
    assert [entry.error_code for entry in answer.entries] == [0]


async def produce(broker: InProcessBroker, acks: int = -1) -> ProduceResponse:
    request = produce_request("topic", b"x" * RECORD_BYTES, acks=acks)
    return await broker.ask(request, ProduceResponse, BY_NAME_PRODUCE)


async def test_a_producer_above_its_quota_is_answered_and_then_not_read(broker: InProcessBroker) -> None:
    await limit(broker, producer_byte_rate=RECORD_BYTES / 10.5)
    answer = await produce(broker)
    throttle_ms = answer.throttle_time_ms
    assert 0 < throttle_ms < 10_000
    assert answer.responses[0].partition_responses[0].error_code == 0, "it is written all the same"
    answered = time.monotonic()
    await broker.metadata("topic")
    assert (time.monotonic() - answered) * 1_000 > throttle_ms * 0.8


async def test_a_quota_of_one_is_not_felt_by_others(broker: InProcessBroker) -> None:
    await limit(broker, producer_byte_rate=1)
    assert (await produce(broker)).throttle_time_ms > 60_000
    async with asyncio.timeout(PATIENCE_S):
        other = await Channel.connect(broker.address)
        await other.send(MetadataRequest(topics=None), MetadataResponse)
        other.close()


async def test_a_consumer_above_its_quota_is_sent_nothing_for_now_and_loses_nothing(
    broker: InProcessBroker,
) -> None:
    for _ in range(4):
        await produce(broker)
    await limit(broker, consumer_byte_rate=7_500)
    read = 0
    throttled = 0
    async with asyncio.timeout(120):
        while read < 4:
            answer = await broker.ask(fetch_request("topic", read, max_bytes=1), FetchResponse, BY_NAME_FETCH)
            if answer.throttle_time_ms:
                throttled += 1
                assert answer.responses == []
            else:
                assert len(content(answer.responses[0].partitions[0].records)) > RECORD_BYTES
                read += 1
    assert throttled > 0


async def test_changes_to_topics_are_refused_above_their_quota(broker: InProcessBroker) -> None:
    await limit(broker, controller_mutation_rate=1)
    assert await broker.create_topic("many", 11) == 0
    assert await broker.create_topic("more", 5) == 0
    assert await broker.create_topic("too-many", 1) == ThrottlingQuotaExceeded.code


async def test_topics_that_are_created_by_asking_count_as_changes(broker: InProcessBroker) -> None:
    await limit(broker, controller_mutation_rate=1)
    names = [f"auto{number}" for number in range(40)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    answer = await broker.ask(request, MetadataResponse)
    errors = [topic.error_code for topic in answer.topics]
    made = errors.count(0)
    assert 12 <= made < 30, "what the quota allows at once"
    assert errors.count(UnknownTopicOrPartition.code) == len(names) - made
    assert answer.throttle_time_ms > 0


async def test_brokers_are_not_throttled_when_they_replicate_or_end_transactions(
    broker: InProcessBroker,
) -> None:
    everybody = [EntityData(entity_type="user", entity_name=None)]
    ops = [OpData(key="request_percentage", value=1e-6)]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=everybody, ops=ops)])
    assert (await broker.ask(request, AlterClientQuotasResponse)).entries[0].error_code == 0
    consumer = fetch_request("topic", 0, max_wait_ms=0)
    assert (await broker.ask(consumer, FetchResponse, BY_NAME_FETCH)).throttle_time_ms > 0
    follower = fetch_request("topic", 0, max_wait_ms=0)
    follower.replica_id = 2
    assert (await broker.ask(follower, FetchResponse, BY_NAME_FETCH)).throttle_time_ms == 0
    begun = time.monotonic()
    for _ in range(20):
        await broker.ask(WriteTxnMarkersRequest(markers=[]), WriteTxnMarkersResponse)
    assert time.monotonic() - begun < 19.0, "each would be followed by a second in which nothing is read"


async def is_served(broker: InProcessBroker) -> bool:
    """Whether a new connection is answered; one that is not is closed in the end."""
    reader, writer = await asyncio.open_connection(*broker.address)
    try:
        writer.write(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1))
        return await reader.read(1) != b""
    except ConnectionError:
        return False
    finally:
        writer.close()


async def test_an_address_above_its_rate_is_not_served_and_others_are(broker: InProcessBroker) -> None:
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type="ip", entity_name="127.0.0.1")],
                ops=[OpData(key="connection_creation_rate", value=1.0)],
            )
        ]
    )
    answer = await broker.ask(request, AlterClientQuotasResponse)
    assert [entry.error_code for entry in answer.entries] == [0]
    async with asyncio.timeout(60):
        served = [await is_served(broker) for _ in range(10)]
        assert served == [True] * 10, "a burst is allowed"
        attempts = await asyncio.gather(*(is_served(broker) for _ in range(3)))
        assert not all(attempts)
        await broker.metadata("topic")


@pytest.mark.rest
def test_real_clients_get_everything_through_within_their_quotas() -> None:
    """The clients wait for the broker, whose time jumps meanwhile."""
    rate, count = 50_000, 28
    throttles: list[float] = []
    with run_broker(time="virtual") as broker:
        asyncio.run(limit_everybody(broker.bootstrap, rate))
        client = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0}
        producer = Producer({**client, "batch.size": 2 * RECORD_BYTES})
        for number in range(count):
            producer.produce("topic", str(number).encode().ljust(RECORD_BYTES, b"."))
        deadline = time.monotonic() + PATIENCE_S
        while producer.flush(0.02):
            assert time.monotonic() < deadline
            broker.time.advance("500ms")
        consumer = Consumer({
            **client, "group.id": "g", "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 2 * RECORD_BYTES, "session.timeout.ms": 300_000,
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        })  # fmt: skip
        consumer.subscribe(["topic"])
        read: list[int] = []
        while len(read) < count:
            assert time.monotonic() < deadline
            message = consumer.poll(0.02)
            if message is None or message.error() is not None:
                broker.time.advance("500ms")
            else:
                read.append(int((message.value() or b"").rstrip(b".")))
        consumer.close()
    assert read == list(range(count))
    assert throttles


async def limit_everybody(bootstrap: str, rate: float) -> None:
    async with Admin(bootstrap) as admin:
        quotas = {"producer_byte_rate": rate, "consumer_byte_rate": rate}
        await admin.alter_client_quotas({"user": None}, quotas)
