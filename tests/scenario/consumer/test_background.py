"""Background tasks of the consumer: their failures reach the caller, and no request waits behind a fetch."""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

import pytest

from barnabas.client import (
    BackgroundFailed,
    ClientClosed,
    Consumer,
    RebalanceListener,
    Record,
    TopicPartition,
)
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.consumer.coordination import Coordination
from barnabas.client.consumer.core.fetch_plans import FetchPlans
from barnabas.client.consumer.position_updates import PositionUpdates
from tests.scenario.consumer.conftest import PATIENCE_S, Bench, read
from tests.scenario.consumer.test_consumer import numbered

LONG_MS = 20_000


class Unexpected(Exception):
    """Error that no part of the client foresees."""


def fail(*_: object, **__: object) -> None:
    raise Unexpected("planted")


@pytest.mark.parametrize(
    ("part", "method"), [(Coordination, "_look"), (FetchPlans, "answered"), (PositionUpdates, "_unmoved")]
)
async def test_an_unexpected_error_in_the_background_reaches_the_caller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, part: type, method: str
) -> None:
    await bench.create(1)
    await bench.write(numbered(3))
    monkeypatch.setattr(part, method, fail)
    async with asyncio.timeout(PATIENCE_S / 3), bench.consumer() as consumer:
        for _ in range(2):  # the consumer stays broken
            with pytest.raises(BackgroundFailed, match="planted") as raised:
                await consumer.get_one()
            assert isinstance(raised.value.__cause__, Unexpected)


async def test_positions_do_not_wait_for_a_long_fetch(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(3))
    async with bench.consumer(fetch_max_wait_ms=LONG_MS) as consumer:
        await read(consumer, 3)
        await asyncio.sleep(0.2)  # the next fetch is at the broker, which holds it back
        async with asyncio.timeout(LONG_MS / 2_000):
            assert await consumer.end_offsets([bench.at()]) == {bench.at(): 3}
            assert bench.topic in await consumer.topics()


async def test_a_commit_is_kept_when_the_block_fails_after_it(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(3))

    async def fail_after_commit() -> None:
        async with bench.consumer() as consumer:
            await consumer.get_one()
            await consumer.commit()
            raise Unexpected

    with pytest.raises(Unexpected):
        await fail_after_commit()
    async with bench.consumer() as consumer:
        assert (await consumer.get_one()).offset == 1


async def test_types_of_key_and_value_follow_the_deserializers(bench: Bench) -> None:
    """mypy judges the types; without them the two lines below do not pass it."""
    await bench.create(1)
    await bench.write([b"7"])
    consumer = Consumer(
        bench.bootstrap,
        group=bench.group,
        topics=[bench.topic],
        auto_offset_reset="earliest",
        key_deserializer=bytes.decode,
        value_deserializer=int,
    )
    assert_type(consumer, Consumer[str, int])
    async with consumer:
        record = await consumer.get_one()
    assert_type(record, Record[str, int])
    assert record.value == 7


async def test_an_application_that_never_waits_keeps_nothing_from_the_background(bench: Bench) -> None:
    """`poll()` without a timeout in a tight loop: fetches and heartbeats run all the same."""
    await bench.create(1)
    await bench.write(numbered(3))
    loop = asyncio.get_running_loop()
    async with bench.consumer() as consumer:
        found: list[Record[Any, Any]] = []
        deadline_s = loop.time() + PATIENCE_S
        while len(found) < 3:
            found += await consumer.poll()
            assert loop.time() < deadline_s, "no record comes: the loop never runs"


async def test_a_listener_commits_while_the_consumer_closes(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(3))

    class Committing(RebalanceListener):
        async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            before = await consumer.committed(partitions)
            position = await consumer.position(bench.at())
            if before[bench.at()] is None:
                await consumer.commit({bench.at(): position})
            with pytest.raises(ClientClosed):
                await consumer.poll()

    consumer = bench.consumer(enable_auto_commit=False, listener=Committing())
    async with consumer:
        assert (await consumer.get_one()).offset == 0
    async with bench.consumer() as successor:
        assert (await successor.get_one()).offset == 1


async def test_close_ends_the_wait_of_another_task(bench: Bench) -> None:
    await bench.create(1)
    consumer = bench.consumer(enable_auto_commit=False)
    await consumer.start()
    waiting = asyncio.create_task(consumer.get_one())
    await asyncio.sleep(0.1)
    async with asyncio.timeout(PATIENCE_S / 3):
        first, second = asyncio.create_task(consumer.close()), asyncio.create_task(consumer.close())
        with pytest.raises(ClientClosed):
            await waiting
        await second
        assert first.done(), "the second call waits for the first"


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_a_deleted_topic_holds_up_nothing(bench: Bench, protocol: str) -> None:
    """Its offsets cannot be committed any more: the rebalance that takes it away must not wait for them."""
    kept, gone = f"{bench.topic}-kept", f"{bench.topic}-gone"
    for name in (kept, gone):
        await bench.create(1, topic=name)
        await bench.write([b"before"], topic=name)
    settings = {"group_protocol": protocol, "metadata_max_age_ms": 200, "auto_commit_interval_ms": 100}
    async with bench.consumer(topics=[kept, gone], allow_auto_create_topics=False, **settings) as consumer:
        await read(consumer, 2)
        await TopicAdmin(bench.cluster).delete_topic(gone)
        async with asyncio.timeout(PATIENCE_S / 2):
            while consumer.assignment != {TopicPartition(kept, 0)}:
                await consumer.poll(timeout_ms=50)
            await bench.write([b"after"], topic=kept)
            assert (await consumer.get_one()).value == b"after"
