"""aiokafka's transactional producer: version 0 of every transactional request."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from tests.support.fixtures import TopicFactory


def new_id() -> str:
    return f"tx-{uuid.uuid4()}"


def transactional(bootstrap: str, transactional_id: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)


@pytest_asyncio.fixture
async def producer(bootstrap: str) -> AsyncIterator[AIOKafkaProducer]:
    async with transactional(bootstrap, new_id()) as sender:
        yield sender


async def read_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Everything up to the present end of what a reader of this kind may see."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation) as receiver:
        partition = TopicPartition(topic, 0)
        receiver.assign([partition])
        await receiver.seek_to_beginning(partition)
        (end,) = (await receiver.end_offsets([partition])).values()
        found: list[bytes] = []
        while await receiver.position(partition) < end:
            for records in (await receiver.getmany(timeout_ms=200)).values():
                found += [record.value for record in records]
        return found


async def test_a_block_commits_and_an_error_in_it_aborts(
    bootstrap: str, topic: str, producer: AIOKafkaProducer
) -> None:
    async with producer.transaction():
        await producer.send_and_wait(topic, b"one", partition=0)
        assert await read_all(bootstrap, topic) == []
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
        async with producer.transaction():
            await producer.send_and_wait(topic, b"two", partition=0)
            raise ZeroDivisionError
    async with producer.transaction():
        await producer.send_and_wait(topic, b"three", partition=0)
    assert await read_all(bootstrap, topic) == [b"one", b"three"]
    assert await read_all(bootstrap, topic, "read_uncommitted") == [b"one", b"two", b"three"]


async def test_a_producer_is_fenced_by_the_next_with_its_id(bootstrap: str, topic: str) -> None:
    transactional_id = new_id()
    async with transactional(bootstrap, transactional_id) as zombie:
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"lost", partition=0)
        async with transactional(bootstrap, transactional_id) as successor:
            with pytest.raises(ProducerFenced):
                await zombie.commit_transaction()
            async with successor.transaction():
                await successor.send_and_wait(topic, b"kept", partition=0)
    assert await read_all(bootstrap, topic) == [b"kept"]


async def test_offsets_are_committed_with_their_transaction(
    bootstrap: str, new_topic: TopicFactory, producer: AIOKafkaProducer
) -> None:
    source, sink, group = new_topic(), new_topic(), new_id()
    partition = TopicPartition(source, 0)
    async with producer.transaction():
        await producer.send_and_wait(sink, b"result", partition=0)
        await producer.send_offsets_to_transaction({partition: 17}, group)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with producer.transaction():
            await producer.send_offsets_to_transaction({partition: 99}, group)
            raise ZeroDivisionError
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    ) as receiver:
        receiver.assign([partition])
        assert await receiver.committed(partition) == 17
