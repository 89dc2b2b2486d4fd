"""Brokers killed, paused and cut off under three workloads, on three Barnabas and three Apache Kafka brokers.

`CLIENT_FAULT_ROUNDS` (`make client-faults`) is how often the faults come round; each time another broker has
another role.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import TopicPartition
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError
from tests.scenario.client_faults.links import Links, links_to
from tests.scenario.client_faults.workload import (
    PARTITIONS,
    SESSION_TIMEOUT_MS,
    WAIT_MAX_S,
    Workload,
    client_tasks,
)
from tests.support.clusters import AnyCluster, Member, any_cluster

ROUNDS = int(os.environ.get("CLIENT_FAULT_ROUNDS", "1"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 * ROUNDS)]
FAULT_S = 4.0
"""Longer than a broker is believed alive, and than a request waits for its answer."""
SETTINGS = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(
    scope="module", params=["barnabas", pytest.param("kafka", marks=pytest.mark.java)], ids=lambda name: name
)
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyCluster]:
    """The coordinators have one partition each: their leader is the coordinator of every group."""
    directory: Path = tmp_path_factory.mktemp(request.param)
    with any_cluster(request.param, directory, SETTINGS, session_timeout_ms=3_000) as cluster:
        yield cluster


@pytest.fixture
async def links(three: AnyCluster) -> AsyncIterator[Links]:
    async with links_to(three.brokers) as links:
        yield links


async def killed(broker: Member, _links: Links) -> None:
    await asyncio.to_thread(broker.kill)
    await asyncio.sleep(FAULT_S)
    await asyncio.to_thread(broker.restart)


async def paused(broker: Member, _links: Links) -> None:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(FAULT_S)
    finally:
        os.kill(broker.pid, signal.SIGCONT)


async def cut_off(broker: Member, links: Links) -> None:
    links.to(broker).cut()
    await asyncio.sleep(FAULT_S)
    links.to(broker).heal()


async def without_answers(broker: Member, links: Links) -> None:
    """Requests are handled, and their answers are lost: the clients must send them again."""
    links.to(broker).lose_replies()
    await asyncio.sleep(FAULT_S)
    links.to(broker).drop()  # no stream goes on behind a hole
    links.to(broker).heal()


Fault = Callable[[Member, Links], Awaitable[None]]
FAULTS: tuple[tuple[str, Fault], ...] = (
    ("coordinator", killed),
    ("leader", paused),
    ("leader", without_answers),
    ("coordinator", cut_off),
)
MORE_FAULTS: tuple[tuple[str, Fault], ...] = (
    ("leader", killed),
    ("coordinator", paused),
    ("coordinator", without_answers),
    ("leader", cut_off),
)
"""For the long run."""


async def strike(three: AnyCluster, links: Links, work: Workload, role: str, fault: Fault) -> None:
    topic = work.source if role == "leader" else "__consumer_offsets"
    await asyncio.to_thread(three.wait_in_sync, [topic])
    broker = three.broker(await asyncio.to_thread(three.leader, topic))
    await fault(broker, links)
    await asyncio.to_thread(three.wait_in_sync, [work.source, work.target])


async def a_member_is_killed(three: AnyCluster, work: Workload) -> None:
    """A member that is gone from one moment to the next, as the brokers see it; and one that leaves."""
    async with links_to(three.brokers) as own:
        dying = asyncio.create_task(work.handle(own))
        await asyncio.sleep(FAULT_S)
        own.cut()
        dying.cancel()
        async with asyncio.timeout(WAIT_MAX_S):
            await asyncio.wait([dying])
    stop = asyncio.Event()
    leaving = asyncio.create_task(work.handle(stop=stop))
    await asyncio.sleep(FAULT_S / 2)
    stop.set()
    async with asyncio.timeout(WAIT_MAX_S):
        await leaving


@pytest.mark.client_faults
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_nothing_is_lost_doubled_or_reordered(three: AnyCluster, links: Links, protocol: str) -> None:
    """An idempotent writer, transactional copiers and `process`, while members come and go."""
    work = Workload(three.bootstrap, links, protocol)
    for topic in (work.source, work.target):
        await asyncio.to_thread(three.create_topic, topic, PARTITIONS)
    async with work.running():
        for _ in range(ROUNDS):
            for role, fault in FAULTS if ROUNDS == 1 else FAULTS + MORE_FAULTS:
                churn = asyncio.create_task(a_member_is_killed(three, work))
                await strike(three, links, work, role, fault)
                await churn
    await asyncio.to_thread(work.judge)
    await assert_nothing_is_left(links)


async def test_every_wait_ends_without_a_broker(three: AnyCluster, links: Links) -> None:
    """All links are cut: each call ends by its timeout, with an error that says so."""
    work = Workload(three.bootstrap, links, "consumer")
    await asyncio.to_thread(three.create_topic, work.source, PARTITIONS)
    timeouts: dict[str, Any] = {"max_block_ms": 2_000, "delivery_timeout_ms": 4_000}
    producer = work.producer(**timeouts)
    transactional = work.producer(transactional_id=work.source, **timeouts)
    consumer = work.consumer(
        "group", topics=[work.source], default_api_timeout_ms=2_000, isolation_level="read_committed"
    )
    async with asyncio.timeout(WAIT_MAX_S):
        async with producer, transactional, consumer:
            await producer.publish(work.source, b"0", partition=0)
            assert [record.value for record in await consumer.poll(timeout_ms=30_000)] == [b"0"]
            await transactional.begin_transaction()
            await transactional.send(work.source, b"1", partition=0)
            await transactional.flush()
            links.cut()
            lost = await producer.send(work.source, b"2", partition=0)
            assert not await consumer.poll(timeout_ms=500)
            for call in (
                lambda: lost,
                transactional.commit_transaction,
                consumer.commit,
                lambda: consumer.end_offsets([TopicPartition(work.source, 0)]),
                lambda: producer.send("unknown", b"3"),
            ):
                with pytest.raises((KafkaError, ClusterUnreachable, TimeoutError)):
                    await call()
            await asyncio.gather(
                *(each.close(timeout_ms=2_000) for each in (producer, transactional, consumer))
            )
    links.heal()
    await assert_nothing_is_left(links)


async def assert_nothing_is_left(links: Links) -> None:
    assert not client_tasks()
    async with asyncio.timeout(WAIT_MAX_S):
        while links.open_connections:  # noqa: ASYNC110 - a proxy sees the end of a connection a little later
            await asyncio.sleep(0.05)
