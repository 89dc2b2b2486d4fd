"""The producer while brokers die, return, move leaders and stand still; its memory and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from tests.support.ports import free_port
from tests.support.reading import read_values
from tests.support.waiting import PATIENCE_S

from barnabas.client import Admin, ClientClosed, Consumer, Producer, TopicPartition
from barnabas.client.producer.delivery import Delivery
from barnabas.core.errors import RequestTimedOut
from barnabas.testing.broker import RunningBroker, run_broker
from barnabas.testing.cluster import run_cluster

RECORDS = 3_000


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


@pytest.mark.slow
async def test_nothing_is_lost_doubled_or_reordered_by_kills(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap, linger_ms=1, batch_size=500, retry_backoff_max_ms=200) as producer:
        await producer.publish("orders", b"0")
        deliveries = []
        for number in range(1, RECORDS):
            deliveries.append(await producer.send("orders", b"%d" % number))
            if number % 1_000 == 0:
                await deliveries[number - 500]
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.restart)
        found = [await delivery for delivery in deliveries]
    assert [each.offset for each in found] == list(range(1, RECORDS))
    assert broker.values("orders") == [b"%d" % number for number in range(RECORDS)]


async def test_a_new_leader_is_found_without_a_loss() -> None:
    with run_cluster(2) as cluster:
        cluster.create_topic("orders")
        async with Producer(cluster.bootstrap, linger_ms=0, batch_size=300) as producer:
            deliveries: list[Delivery] = []
            for round_number in range(4):
                values = [b"%d-%d" % (round_number, number) for number in range(200)]
                deliveries += await producer.send_many("orders", values)
                leader = 2 - round_number % 2
                await asyncio.to_thread(lambda to: cluster.move_leader("orders", to=to), leader)
            found = [await delivery for delivery in deliveries]
            assert [each.offset for each in found] == list(range(800))
            assert producer.metrics.snapshot()["producer_record_error_total"] == 0


async def test_send_waits_while_the_buffer_is_full_and_memory_stays_bounded(broker: RunningBroker) -> None:
    limits: dict[str, Any] = {"buffer_memory": 20_000, "batch_size": 2_000}
    async with Producer(broker.bootstrap, linger_ms=0, **limits) as producer:
        await producer.publish("orders", b"first")

        async def write(task: int) -> None:
            for number in range(20):
                await (await producer.send("orders", b"%d-%d" % (task, number) + b"x" * 500))

        await asyncio.gather(*(write(task) for task in range(100)))
        numbers = producer.metrics.snapshot()
        assert numbers["producer_record_send_total"] == 2_001
        assert numbers["producer_buffer_available_bytes"] == 20_000
        assert numbers["producer_waiting_senders"] == 0


async def test_a_full_buffer_ends_the_wait_after_max_block(broker: RunningBroker) -> None:
    producer = Producer(
        broker.bootstrap, buffer_memory=10_000, batch_size=2_000, max_block_ms=2_000, linger_ms=0
    )
    await producer.publish("orders", b"first")
    broker.kill()
    sent = 0

    async def fill() -> None:
        nonlocal sent
        while True:
            await producer.send("orders", b"x" * 500)
            sent += 1

    with pytest.raises(RequestTimedOut, match=r"buffer\.memory"):
        await fill()
    assert 15 <= sent <= 20, "the memory bounds the records that wait"
    waiting = asyncio.ensure_future(producer.send("orders", b"x" * 500))
    await asyncio.sleep(0)
    await producer.close(timeout_ms=0)
    with pytest.raises((ClientClosed, RequestTimedOut)):
        await waiting


async def test_an_unreachable_cluster_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with Producer(f"127.0.0.1:{free_port()}", max_block_ms=300) as producer:
            with pytest.raises(RequestTimedOut, match="topic orders"):
                await producer.send("orders", b"v")
    assert "no broker answers" in caplog.text


async def test_records_that_cannot_be_delivered_fail_in_time(broker: RunningBroker) -> None:
    timeouts: dict[str, Any] = {"delivery_timeout_ms": 600, "request_timeout_ms": 500, "linger_ms": 0}
    async with Producer(broker.bootstrap, **timeouts) as producer:
        await producer.publish("orders", b"first")
        broker.kill()
        delivery = await producer.send("orders", b"late")
        with pytest.raises(RequestTimedOut, match=r"delivery\.timeout\.ms"):
            await delivery
        await asyncio.to_thread(broker.restart)
        assert (await producer.publish("orders", b"second")).offset >= 1


async def test_close_leaves_no_task_and_no_record_without_an_outcome(broker: RunningBroker) -> None:
    before = asyncio.all_tasks()
    producer = Producer(broker.bootstrap, linger_ms=60_000)
    sent = await producer.send("orders", b"v")
    await producer.close()
    await producer.close()
    assert sent.result().offset == 0
    late = Producer(broker.bootstrap, linger_ms=60_000)
    unsent = await late.send("orders", b"v")
    await late.close(timeout_ms=0)
    with pytest.raises(ClientClosed):
        await unsent
    assert asyncio.all_tasks() <= before


async def test_close_ends_the_calls_of_other_tasks() -> None:
    """They would be retried until their timeouts, a minute, although every attempt fails."""
    with run_broker({"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic("orders")
        at = TopicPartition("orders", 0)
        producer, consumer = Producer(broker.bootstrap), Consumer(broker.bootstrap, group="g")
        admin = Admin(broker.bootstrap)
        await producer.start()
        await consumer.start()
        await consumer.assign([at])
        await asyncio.gather(admin.list_topics(), consumer.committed([at]), consumer.end_offsets([at]))
        await asyncio.to_thread(broker.pause)
        try:
            await consumer.seek_to_beginning(at)
            calls: list[Coroutine[Any, Any, object]] = [
                producer.send("no-such-topic", b"v"),
                producer.partitions_for("no-such-topic"),
                consumer.committed([at]),
                consumer.end_offsets([at]),
                consumer.commit({at: 1}),
                consumer.offsets_for_times({TopicPartition("no-such-topic", 0): 0}),
                consumer.position(at),
                admin.list_topics(),
                admin.describe_groups(["g"]),
            ]
            tasks = [asyncio.create_task(call) for call in calls]
            await asyncio.sleep(0.1)
            await producer.close(timeout_ms=100)
            await consumer.close(timeout_ms=100)
            await admin.close()
            async with asyncio.timeout(PATIENCE_S / 2):
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await asyncio.to_thread(broker.resume)
    assert [type(each) for each in outcomes] == [ClientClosed] * len(calls)


async def test_close_waits_for_a_commit_of_another_task() -> None:
    with run_broker() as broker:
        producer = Producer(broker.bootstrap, transactional_id="billing")
        await producer.start()
        await producer.begin_transaction()
        await producer.publish("orders", b"v")
        await asyncio.to_thread(broker.pause)
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.1)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.1)
        await asyncio.to_thread(broker.resume)
        await committing
        await closing
        assert await read_values(broker.bootstrap, "orders", read_committed=True) == [b"v"]


async def test_a_cancelled_sender_takes_nothing_from_the_others(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap, buffer_memory=4_000, batch_size=2_000) as producer:
        await producer.publish("orders", b"first")
        tasks = [asyncio.ensure_future(producer.publish("orders", b"x" * 1_500)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert not any(isinstance(outcome, BaseException) for outcome in outcomes[1::2])
        await producer.flush()
        assert producer.metrics.snapshot()["producer_buffer_available_bytes"] == 4_000


async def test_a_partitioner_that_fails_takes_no_memory(broker: RunningBroker) -> None:
    """It is asked again after the wait for memory, which is reserved then."""
    asked = 0

    def partition(_topic: str, key: bytes | None, _count: int) -> int:
        nonlocal asked
        asked += key == b"bad"
        if asked > 3:
            raise ValueError("planted")
        return 0

    settings: dict[str, Any] = {"buffer_memory": 2_000, "batch_size": 2_000, "partitioner_class": partition}
    async with Producer(broker.bootstrap, **settings) as producer:
        await producer.publish("orders", b"first")
        deliveries = [await producer.send("orders", b"x" * 1_500)]
        with pytest.raises(ValueError, match="planted"):
            await producer.send("orders", b"y" * 1_500, key=b"bad")
        asked = 0
        deliveries.append(await producer.send("orders", b"z" * 1_500))
        assert [(await each).offset for each in deliveries] == [1, 2]
