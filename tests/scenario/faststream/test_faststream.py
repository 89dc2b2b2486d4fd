"""The plug-in for FastStream on a broker: acknowledgements, retries, dead letters, batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import NackMessage, StopConsume
from tests.support.waiting import PATIENCE_S

from barnabas.client import Admin, Retry, TopicPartition
from barnabas.faststream import KafkaBroker, KafkaMessage, KafkaResponse, TestKafkaBroker
from barnabas.faststream.annotations import KafkaMessage as Message
from barnabas.testing.broker import RunningBroker, run_broker


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


@pytest.fixture
def topic(server: RunningBroker) -> str:
    return server.create_topic()


@pytest.fixture
def broker(server: RunningBroker) -> KafkaBroker:
    return KafkaBroker(server.bootstrap, log_level=logging.CRITICAL, logger=None)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.01)


class Seen(list[Any]):
    """Bodies in the order of their handling."""

    async def until(self, *wanted: Any) -> None:
        await eventually(lambda: set(wanted) <= set(self))


EARLY: dict[str, Any] = {"auto_offset_reset": "earliest"}


async def test_records_are_handled_and_published(
    server: RunningBroker, topic: str, broker: KafkaBroker
) -> None:
    seen = Seen()

    @broker.subscriber(topic, group_id=topic, max_workers=8, **EARLY)
    @broker.publisher(f"{topic}-out", headers={"from": "test"})
    async def double(number: int) -> KafkaResponse:
        return KafkaResponse(number * 2, key=b"%d" % number)

    @broker.subscriber(f"{topic}-out", group_id=topic, **EARLY)
    async def keep(number: int, message: Message) -> None:
        seen.append((number, message.raw_message.key, message.headers["from"]))

    async with broker:
        await broker.start()
        assert await broker.ping(5)
        metadata = await broker.publish(1, topic, key="k")
        assert (metadata.topic, metadata.offset) == (topic, 0)
        delivery = await broker.publish(2, topic, no_confirm=True)
        await broker.publish_batch(3, 4, topic=topic)
        assert (await delivery).topic == topic
        await seen.until(*((number * 2, b"%d" % number, "test") for number in (1, 2, 3, 4)))
    assert server.committed(topic)[TopicPartition(topic, 0)] == 4


async def test_a_nacked_record_comes_again_and_the_others_are_kept(
    server: RunningBroker, topic: str, broker: KafkaBroker
) -> None:
    """FastStream's other brokers lose it when a later offset is committed."""
    seen, fails = Seen(), True

    @broker.subscriber(topic, group_id=topic, max_workers=8, ack_policy=AckPolicy.NACK_ON_ERROR, **EARLY)
    async def handle(body: str) -> None:
        seen.append(body)
        if body == "bad" and fails:
            raise ValueError("not yet")

    for body in ("first", "bad", "last"):
        await _publish(broker, topic, body)
    await broker.start()
    await seen.until("first", "bad", "last")
    await eventually(lambda: seen.count("bad") >= 3)
    await broker.stop()
    unfinished = {TopicPartition(topic, 0): 1}  # `last` is in the metadata
    assert server.committed(topic) == unfinished

    fails = False
    seen.clear()
    await broker.start()
    await seen.until("bad")
    await broker.stop()
    assert seen == ["bad"]
    assert server.committed(topic) == {TopicPartition(topic, 0): 3}


async def _publish(broker: KafkaBroker, topic: str, body: str, **options: Any) -> None:
    await broker.connect()
    await broker.publish(body, topic, **options)


async def test_a_rejected_record_becomes_a_dead_letter_at_once(topic: str, broker: KafkaBroker) -> None:
    seen, letters = Seen(), Seen()

    @broker.subscriber(topic, group_id=topic, dead_letters=f"{topic}-dead", **EARLY)
    async def handle(body: str) -> None:
        seen.append(body)
        if body == "bad":
            raise ValueError("no apples")

    @broker.subscriber(f"{topic}-dead", group_id=f"{topic}-dead", **EARLY)
    async def keep(body: str, message: Message) -> None:
        letters.append((body, message.headers["__connect.errors.exception.message"]))

    async with broker:
        for body in ("bad", "good"):
            await _publish(broker, topic, body)
        await broker.start()
        await letters.until(("bad", "ValueError: no apples"))
        await seen.until("good")
    assert seen == ["bad", "good"]


async def test_retries_end_in_a_dead_letter(topic: str, broker: KafkaBroker) -> None:
    seen, letters = Seen(), Seen()
    retry = Retry(3, first_ms=1)

    @broker.subscriber(topic, group_id=topic, retry=retry, dead_letters=f"{topic}-dead", **EARLY)
    async def handle(body: str) -> None:
        seen.append(body)
        raise NackMessage

    @broker.subscriber(f"{topic}-dead", group_id=f"{topic}-dead", **EARLY)
    async def keep(body: str) -> None:
        letters.append(body)

    async with broker:
        await _publish(broker, topic, "bad")
        await broker.start()
        await letters.until("bad")
    assert seen == ["bad"] * 3


async def test_a_manual_acknowledgement_may_come_later(
    server: RunningBroker, topic: str, broker: KafkaBroker
) -> None:
    waiting: list[KafkaMessage] = []
    seen = Seen()

    @broker.subscriber(topic, group_id=topic, max_workers=4, ack_policy=AckPolicy.MANUAL, **EARLY)
    async def handle(body: str, message: Message) -> None:
        waiting.append(message)
        seen.append(body)

    for body in ("0", "1", "2"):
        await _publish(broker, topic, body)
    await broker.start()
    await seen.until("0", "1", "2")
    (first,) = (message for message in waiting if message.raw_message.offset == 0)
    await first.ack()
    await asyncio.sleep(0)
    await broker.stop()
    assert server.committed(topic) == {TopicPartition(topic, 0): 1}

    seen.clear()
    await broker.start()
    await seen.until("1", "2")
    for message in waiting[3:]:
        await message.ack()
    await broker.stop()
    assert sorted(seen) == ["1", "2"]


async def test_keys_stay_in_order_among_concurrent_handlers(topic: str, broker: KafkaBroker) -> None:
    seen, running_now, most = Seen(), 0, 0

    @broker.subscriber(topic, group_id=topic, max_workers=8, **EARLY)
    async def handle(body: str) -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await asyncio.sleep(0.001)
        running_now -= 1
        seen.append(body)

    async with broker:
        for number in range(30):
            await _publish(broker, topic, f"{number % 3} {number:02}", key=str(number % 3))
        await broker.start()
        await seen.until(*(f"{number % 3} {number:02}" for number in range(30)))
    for key in "012":
        own = [body for body in seen if body.startswith(key)]
        assert own == sorted(own)
    assert most > 1


async def test_a_batch_is_committed_or_read_again(
    server: RunningBroker, topic: str, broker: KafkaBroker
) -> None:
    seen, fails = Seen(), True

    @broker.subscriber(
        topic, group_id=topic, batch=True, max_records=2, ack_policy=AckPolicy.NACK_ON_ERROR, **EARLY
    )
    async def handle(bodies: list[str]) -> None:
        nonlocal fails
        seen.append(tuple(bodies))
        if fails:
            fails = False
            raise ValueError("not yet")

    async with broker:
        for body in ("0", "1", "2"):
            await _publish(broker, topic, body)
        await broker.start()
        await seen.until(("0", "1"), ("2",))
    assert seen == [("0", "1"), ("0", "1"), ("2",)]
    assert server.committed(topic) == {TopicPartition(topic, 0): 3}


async def test_without_a_group_all_partitions_are_read(topic: str, broker: KafkaBroker) -> None:
    seen = Seen()
    await _publish(broker, topic, "0")

    @broker.subscriber(topic, **EARLY)
    async def handle(body: str) -> None:
        seen.append(body)
        raise ValueError("acknowledged first")

    async with broker:
        await broker.start()
        await _publish(broker, topic, "1")
        await seen.until("0", "1")
    assert seen == ["0", "1"]


async def test_a_handler_may_stop_its_subscriber(
    server: RunningBroker, topic: str, broker: KafkaBroker
) -> None:
    seen = Seen()

    @broker.subscriber(topic, group_id=topic, **EARLY)
    async def handle(body: str) -> None:
        seen.append(body)
        raise StopConsume

    async with broker:
        await _publish(broker, topic, "0")
        await broker.start()
        await seen.until("0")
        (subscriber,) = broker.subscribers
        await eventually(lambda: subscriber.consumer is None)  # type: ignore[attr-defined]
        await _publish(broker, topic, "1")
    assert seen == ["0"]
    async with Admin(server.bootstrap) as admin:
        assert (await admin.describe_groups([topic]))[topic].members == ()


async def test_messages_are_taken_without_a_handler(topic: str, broker: KafkaBroker) -> None:
    await _publish(broker, topic, "0")
    await _publish(broker, topic, "1")
    subscriber = broker.subscriber(topic, **EARLY)
    async with broker:
        await broker.start()
        first = await subscriber.get_one(timeout=PATIENCE_S)
        assert first is not None
        assert await first.decode() == "0"
        async for message in subscriber:
            assert await message.decode() == "1"
            break
        assert await subscriber.get_one(timeout=0) is None


async def test_the_test_broker_works_with_the_real_one(topic: str, broker: KafkaBroker) -> None:
    publisher = broker.publisher(f"{topic}-out")

    @broker.subscriber(topic, group_id=topic, **EARLY)
    async def handle(body: str) -> None:
        await publisher.publish(body)

    async with TestKafkaBroker(broker, with_real=True):
        await broker.publish("v", topic)
        await handle.wait_call(PATIENCE_S)
        handle.mock.assert_called_once_with("v")
