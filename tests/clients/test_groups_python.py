"""Consumer groups through the clients written in Python, which speak other versions than librdkafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.support.fixtures import TopicFactory

TIMEOUT_S = 60.0


def produce(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        for number in range(count):
            sender.send(topic, str(number).encode(), partition=number % partitions)
        sender.flush(TIMEOUT_S)
    finally:
        sender.close(TIMEOUT_S)


def member(bootstrap: str, group: str, topic: str, **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )


def take(receiver: KafkaConsumer, count: int) -> list[int]:
    values: list[int] = []
    while len(values) < count:
        answered = receiver.poll(timeout_ms=TIMEOUT_S * 1_000)
        assert answered, f"silence after {len(values)} of {count} records"
        values += [int(record.value) for batch in answered.values() for record in batch]
    return values


def test_kafka_python_commits_leaves_and_goes_on(
    bootstrap: str, topic: str, request: pytest.FixtureRequest
) -> None:
    produce(bootstrap, topic, 20)
    receiver = member(bootstrap, request.node.name, topic, max_poll_records=10)
    assert take(receiver, 10) == list(range(10))
    receiver.commit()
    partition = TopicPartition(topic, 0)
    assert receiver.committed(partition) == 10
    receiver.close()
    again = member(bootstrap, request.node.name, topic)
    assert take(again, 10) == list(range(10, 20))
    again.seek(partition, 5)
    assert take(again, 15) == list(range(5, 20))
    again.commit({partition: OffsetAndMetadata(7, "a note", -1)})
    found = again.committed(partition, metadata=True)
    assert (found.offset, found.metadata) == (7, "a note")
    again.close()


def test_kafka_python_lists_and_deletes_groups(
    bootstrap: str, topic: str, request: pytest.FixtureRequest
) -> None:
    group = request.node.name
    produce(bootstrap, topic, 1)
    receiver = member(bootstrap, group, topic)
    take(receiver, 1)
    receiver.commit()
    receiver.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        assert group in str(admin.list_groups())
        assert group in str(admin.describe_groups([group]))
        admin.delete_groups([group])
        assert group not in str(admin.list_groups())
    finally:
        admin.close()


async def test_aiokafka_shares_a_topic(
    bootstrap: str, new_topic: TopicFactory, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(partitions=4)

    def consumer() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=request.node.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=1_000,
        )

    async def count_to(receivers: list[AIOKafkaConsumer], wanted: list[int]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while sorted(len(each.assignment()) for each in receivers) != wanted:
                await asyncio.gather(*(each.getmany(timeout_ms=100) for each in receivers))

    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as sender:
        for number in range(40):
            await sender.send_and_wait(topic, str(number).encode(), partition=number % 4)
    async with consumer() as first:
        values: list[int] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(values) < 40:
                for batch in (await first.getmany(timeout_ms=1_000)).values():
                    values += [int(record.value) for record in batch]
        assert sorted(values) == list(range(40))
        await first.commit()
        async with consumer() as second:
            await count_to([first, second], [2, 2])
            assert await second.committed(AioTopicPartition(topic, 0)) == 10
        await count_to([first], [4])
