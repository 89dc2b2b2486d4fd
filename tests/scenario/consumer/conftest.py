"""A broker with quick heartbeats, and a hand that writes and reads beside the client under test."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from barnabas.client import Consumer, Record, TopicPartition
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.testing.broker import run_broker
from tests.support.plain_producer import OutgoingRecord, Producer

QUICK = {
    "group.consumer.heartbeat.interval.ms": "50",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "num.partitions": "4",
}
PATIENCE_S = 60
_numbers = itertools.count()


class Bench:
    """One broker, a topic of its own for each test, and consumers with quick settings."""

    def __init__(self, bootstrap: str, cluster: ClusterClient) -> None:
        self.bootstrap = bootstrap
        self.cluster = cluster
        self.topic = f"topic-{next(_numbers)}"
        self.group = f"group-{next(_numbers)}"
        self._producer = Producer(cluster)

    async def create(self, partitions: int = 4, topic: str | None = None, **configs: str) -> None:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        name = topic or self.topic
        await TopicAdmin(self.cluster).create_topic(name, partitions=partitions, configs=settings)
        await self.cluster.topic(name, unknown_timeout_ms=10_000)

    async def write(
        self,
        values: Sequence[bytes],
        *,
        topic: str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        rows = [
            OutgoingRecord(b"key-%d" % (number % 20), value, (), partition, timestamp_ms)
            for number, value in enumerate(values)
        ]
        await self._producer.send(topic or self.topic, rows)

    def consumer(self, **settings: Any) -> Consumer:
        options = {
            "group": self.group,
            "topics": [self.topic],
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 50,
            "retry_backoff_ms": 10,
            "fetch_max_wait_ms": 50,
            **settings,
        }
        return Consumer(self.bootstrap, **options)

    def at(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, partition)


async def read(consumer: Consumer, count: int) -> list[Record[Any, Any]]:
    """Exactly `count` records."""
    found: list[Record[Any, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += await consumer.poll(timeout_ms=1_000, max_records=count - len(found))
    return found


async def settle(*consumers: Consumer, partitions: int = 4) -> None:
    """Take turns until the consumers share all partitions, and each has some."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for each in consumers:
                assert not await each.poll(timeout_ms=20)
            shares = [each.assignment for each in consumers]
            if all(shares) and sum(map(len, shares)) == partitions:
                return


@pytest.fixture(scope="module")
def running_broker() -> Iterator[str]:
    with run_broker(QUICK) as broker:
        yield broker.bootstrap


@pytest.fixture
async def bench(running_broker: str) -> AsyncIterator[Bench]:
    cluster = ClusterClient(
        [Endpoint.parse(running_broker)], clock=SystemClock(), randomness=random.Random(1)
    )
    async with cluster:
        yield Bench(running_broker, cluster)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in left if "barnabas/client" in str(task.get_coro())], left
