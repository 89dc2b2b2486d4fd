"""Transactions of the producer before real brokers, with both protocols of KIP-890."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.reading import read_values

from barnabas.client import Admin, IllegalState, Producer, TopicPartition, TransactionAborted
from barnabas.client.producer.core.accumulator import Accumulator
from barnabas.client.producer.core.transaction_state import TransactionStatus
from barnabas.client.producer.transactions import Transactions
from barnabas.core.errors import KafkaError, MessageTooLarge, ProducerFenced

NewName = Callable[[str], str]


@pytest.fixture(params=[1, 2])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Transaction protocol that the producer uses. The brokers have both."""
    wanted: int = request.param
    ask = Transactions._protocol

    async def limited(self: Transactions) -> int:
        found = await ask(self)
        assert found == 2, "the broker has transaction.version 2"
        return wanted

    monkeypatch.setattr(Transactions, "_protocol", limited)
    return wanted


async def fail_after(producer: Producer, work: Callable[..., Awaitable[object]], *arguments: Any) -> None:
    """A transaction whose block raises after some work."""

    async def block() -> None:
        async with producer.transaction():
            await work(*arguments)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        await block()


@pytest.mark.usefixtures("protocol")
async def test_a_transaction_is_read_whole_or_not_at_all(address: str, new_name: NewName) -> None:
    topic, name = new_name("orders"), new_name("txn")
    async with Producer(address, transactional_id=name) as producer:
        async with producer.transaction():
            await producer.send_many(topic, [b"a", b"b"])
        await fail_after(producer, producer.publish, topic, b"lost")
        async with producer.transaction():
            await producer.send(topic, b"c")
        async with producer.transaction():
            pass
    assert await read_values(address, topic, read_committed=True) == [b"a", b"b", b"c"]
    assert b"lost" in await read_values(address, topic)


@pytest.mark.usefixtures("protocol")
async def test_offsets_are_part_of_the_transaction(address: str, new_name: NewName) -> None:
    topic, name, group = new_name("orders"), new_name("txn"), new_name("group")
    at = TopicPartition(topic, 0)
    async with Producer(address, transactional_id=name) as producer, Admin(address) as admin:
        async with producer.transaction():
            await producer.send(topic, b"a")
            await producer.send_offsets_to_transaction({at: 5}, group)
        assert await admin.list_group_offsets(group, require_stable=True) == {at: 5}
        await fail_after(producer, producer.send_offsets_to_transaction, {at: (9, "note", 0)}, group)
        assert await admin.list_group_offsets(group, require_stable=True) == {at: 5}
        async with producer.transaction():
            await producer.send_offsets_to_transaction({at: (7, "note", 0)}, group)
        assert await admin.list_group_offsets(group, require_stable=True) == {at: 7}


@pytest.mark.usefixtures("protocol")
async def test_a_newer_producer_fences_the_older(address: str, new_name: NewName) -> None:
    topic, name = new_name("orders"), new_name("txn")
    async with Producer(address, transactional_id=name) as old:
        await old.begin_transaction()
        await old.publish(topic, b"old")
        async with Producer(address, transactional_id=name) as new:
            async with new.transaction():
                await new.send(topic, b"new")
            with pytest.raises(KafkaError):
                await old.publish(topic, b"zombie")
            with pytest.raises(ProducerFenced):
                await old.abort_transaction()
            with pytest.raises(ProducerFenced):
                await old.begin_transaction()
    assert await read_values(address, topic, read_committed=True) == [b"new"]


async def test_a_failed_record_leaves_only_the_abort(address: str, new_name: NewName, protocol: int) -> None:
    topic, name = new_name("orders"), new_name("txn")
    async with Admin(address) as admin:
        from barnabas.client import NewTopic

        await admin.create_topics([NewTopic(topic, 1, 1, {"max.message.bytes": "1000"})])
    async with Producer(address, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.publish(topic, b"first")
        failed = await producer.send(topic, b"x" * 5_000)
        with pytest.raises(MessageTooLarge):
            await producer.commit_transaction()
        with pytest.raises(MessageTooLarge):
            await failed
        with pytest.raises(MessageTooLarge):
            await producer.send(topic, b"more")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"good")
        assert producer._transactions is not None
        assert producer._transactions.state.version == protocol
    assert await read_values(address, topic, read_committed=True) == [b"good"]


async def test_an_abort_fails_what_was_never_sent(address: str, new_name: NewName) -> None:
    topic, name = new_name("orders"), new_name("txn")
    async with Producer(
        address, transactional_id=name, linger_ms=60_000, delivery_timeout_ms=120_000
    ) as producer:
        await producer.begin_transaction()
        delivery = await producer.send(topic, b"unsent")
        await producer.abort_transaction()
        with pytest.raises(TransactionAborted):
            await delivery


async def test_calls_in_the_wrong_order_are_refused(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    async with Producer(address) as producer:
        with pytest.raises(IllegalState, match=r"transactional\.id"):
            await producer.begin_transaction()
    async with Producer(address, transactional_id=new_name("txn")) as producer:
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(IllegalState):
                await call()
        with pytest.raises(IllegalState, match="open transaction"):
            await producer.send(topic, b"v")
        await producer.init_transactions()
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(IllegalState, match="begin_transaction"):
            await producer.begin_transaction()


async def test_a_closed_producer_aborts_its_transaction(address: str, new_name: NewName) -> None:
    topic, name = new_name("orders"), new_name("txn")
    async with Producer(address, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.publish(topic, b"left")
    assert producer._transactions is not None
    assert producer._transactions.state.status is TransactionStatus.READY
    async with Admin(address) as admin:
        assert (await admin.describe_transactions([name]))[name].state in (
            "CompleteAbort",
            "PrepareAbort",
            "Empty",
        )


async def test_a_batch_that_cannot_be_made_ends_its_transaction_alone(
    address: str, new_name: NewName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A codec may run out of memory: the block aborts, and the next transaction begins."""
    topic = new_name("orders")

    def fail(*_: object) -> None:
        raise MemoryError("planted")

    async def block(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"lost")

    async with Producer(address, transactional_id=new_name("txn")) as producer:
        with monkeypatch.context() as patched:
            patched.setattr(Accumulator, "seal", fail)
            with pytest.raises(MemoryError, match="planted"):
                await block(producer)
        async with producer.transaction():
            await producer.publish(topic, b"kept")
    assert await read_values(address, topic, read_committed=True) == [b"kept"]


async def test_tasks_that_begin_together_share_one_producer_id(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    async with Producer(address, transactional_id=new_name("txn")) as producer:
        await asyncio.gather(*(producer.init_transactions() for _ in range(3)))
        async with producer.transaction():
            await producer.publish(topic, b"v")
