"""The consumer and `process` against Apache Kafka, which says what is right."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest

from barnabas.client import Record
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from tests.peers import kafka
from tests.scenario.consumer.conftest import QUICK, Bench, read, settle
from tests.scenario.consumer.test_consumer import by_group, numbered, values
from tests.scenario.consumer.test_process import Seen, ended
from tests.support.broker import running

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    kafka.require_kafka()
    settings = {**QUICK, "group.initial.rebalance.delay.ms": 0}
    with running(kafka.KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=settings)) as broker:
        yield broker.bootstrap


@pytest.fixture
async def bench(kafka_address: str) -> AsyncIterator[Bench]:
    cluster = ClusterClient([Endpoint.parse(kafka_address)], clock=SystemClock(), randomness=random.Random(1))
    async with cluster:
        yield Bench(kafka_address, cluster)


@by_group
async def test_members_read_share_and_continue(bench: Bench, how: Mapping[str, Any]) -> None:
    await bench.create()
    await bench.write(numbered(100))
    async with bench.consumer(**how) as first:
        assert values(await read(first, 100)) == numbered(100)
        async with bench.consumer(**how) as second:
            await settle(first, second)
            assert not first.assignment & second.assignment
    await bench.write(numbered(50, 100))
    async with bench.consumer(**how) as consumer:
        assert values(await read(consumer, 50)) == numbered(50, 100)


async def test_processing_restarts_without_repetition(bench: Bench) -> None:
    await bench.create()
    await bench.write(numbered(200))
    seen = Seen()

    async def handle(record: Record[Any, Any]) -> None:
        for _ in range(record.offset % 5):
            await asyncio.sleep(0)
        seen.add(record)

    for enough in (80, 200):
        async with bench.consumer(auto_commit_interval_ms=10) as consumer:
            work = asyncio.create_task(consumer.process(handle, concurrency=8))
            await seen.until(enough)
            await ended(work)
    seen.assert_once_in_order(numbered(200))


async def test_positions_and_seeks(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(5), timestamp_ms=1_000)
    await bench.write(numbered(5, 5), timestamp_ms=2_000)
    async with bench.consumer(group=None, topics=()) as consumer:
        await consumer.assign([bench.at()])
        assert values(await read(consumer, 10)) == numbered(10)
        await consumer.seek_to_time(1_500)
        assert (await consumer.get_one()).offset == 5
        assert await consumer.lag(bench.at()) == 4
