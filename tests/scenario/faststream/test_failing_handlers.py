"""The plug-in for FastStream when code of the application fails in other ways than by an error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import NackMessage
from tests.support.waiting import PATIENCE_S

from barnabas.client import Consumer
from barnabas.faststream import KafkaBroker, KafkaMessage
from barnabas.testing.broker import RunningBroker, run_broker

EARLY: dict[str, Any] = {"auto_offset_reset": "earliest"}


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


class Bodies(list[str]):
    """Bodies in the order of their handling."""

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self) < count:  # noqa: ASYNC110 - of any handler
                await asyncio.sleep(0.01)


async def _await_a_cancelled_task() -> None:
    other = asyncio.create_task(asyncio.sleep(0))
    other.cancel()
    await other


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({"ack_policy": AckPolicy.REJECT_ON_ERROR}, ["0", "1"], id="rejected"),
        pytest.param({"ack_policy": AckPolicy.NACK_ON_ERROR}, ["0", "0", "1"], id="tried again"),
        pytest.param({"ack_policy": AckPolicy.ACK_FIRST}, ["0", "1"], id="acknowledged first"),
    ],
)
@pytest.mark.parametrize("batch", [False, True], ids=["records", "batches"])
async def test_a_handler_that_awaits_a_cancelled_task_fails_like_any_other(
    topic: str, broker: KafkaBroker, batch: bool, options: dict[str, Any], wanted: list[str]
) -> None:
    seen = Bodies()

    @broker.subscriber(topic, group_id=topic, batch=batch, **options, **EARLY)
    async def handle(body: list[str] | str) -> None:
        text = body if isinstance(body, str) else body[0]
        seen.append(text)
        if seen == ["0"]:
            await _await_a_cancelled_task()

    async with broker:
        await broker.publish("0", topic)
        await broker.start()
        await seen.until(len(wanted) - 1)
        await broker.publish("1", topic)
        await seen.until(len(wanted))
    assert seen == wanted


async def test_a_message_of_an_own_parser_can_be_tried_again(topic: str, broker: KafkaBroker) -> None:
    seen = Bodies()

    async def parse(record: Any) -> KafkaMessage:
        return KafkaMessage(record, record.value, headers={})

    @broker.subscriber(topic, group_id=topic, parser=parse, **EARLY)
    async def handle(body: Any) -> None:
        seen.append(str(body))
        if len(seen) == 1:
            raise NackMessage

    async with broker:
        await broker.publish("0", topic)
        await broker.start()
        await seen.until(2)
    assert seen[0] == seen[1]


async def test_reading_goes_on_after_an_error_of_the_application(
    topic: str, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Bodies()
    take, failed = Consumer.process, asyncio.Event()

    async def process(self: Consumer[Any, Any], *arguments: Any, **keywords: Any) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a deserializer of the application")
        await take(self, *arguments, **keywords)

    monkeypatch.setattr(Consumer, "process", process)

    @broker.subscriber(topic, group_id=topic, **EARLY)
    async def handle(body: str) -> None:
        seen.append(body)

    async with broker:
        await broker.publish("0", topic)
        await broker.start()
        await seen.until(1)
    assert failed.is_set()
