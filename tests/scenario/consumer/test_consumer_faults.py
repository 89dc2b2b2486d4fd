"""Consumers and brokers that die: nothing is lost, the group goes on, positions survive."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import Consumer, RebalanceListener, Record, TopicPartition
from barnabas.client.admin.groups import Groups
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import GroupAuthorizationFailed
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.testing.broker import run_broker
from barnabas.testing.cluster import run_cluster
from tests.scenario.consumer import processing_member
from tests.scenario.consumer.conftest import QUICK, Bench
from tests.scenario.consumer.test_consumer import numbered
from tests.support.plain_producer import OutgoingRecord, Producer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_S = 120
protocols = pytest.mark.parametrize("protocol", ["consumer", "classic"])
QUICK_SETTINGS = {
    **QUICK,
    "group.consumer.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
}


def client_of(bootstrap: str) -> ClusterClient:
    addresses = [Endpoint.parse(each) for each in bootstrap.split(",")]
    return ClusterClient(
        addresses, clock=SystemClock(), randomness=random.Random(1), retry_timeout_ms=PATIENCE_S * 1_000
    )


def consumer_of(bootstrap: str, protocol: str, **settings: Any) -> Consumer:
    return Consumer(
        bootstrap,
        **{
            "group": "group",
            "topics": ["topic"],
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "session_timeout_ms": 6_000,
            "auto_commit_interval_ms": 50,
            "request_timeout_ms": 5_000,
            **settings,
        },
    )


async def write(cluster: ClusterClient, values: Sequence[bytes], topic: str = "topic") -> None:
    rows = [OutgoingRecord(b"key-%d" % (number % 20), value) for number, value in enumerate(values)]
    await Producer(cluster).send(topic, rows)


async def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[Record[Any, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len({record.value for record in found}) < count:
            found += await consumer.poll(timeout_ms=200)
    return [record.value for record in found]


@protocols
async def test_a_killed_member_loses_nothing(tmp_path: Path, protocol: str) -> None:
    """Two processes handle records, and one is killed. Every record is handled; keys stay in order."""
    with run_broker(QUICK_SETTINGS) as broker:
        async with client_of(broker.bootstrap) as cluster:
            bench = Bench(broker.bootstrap, cluster)
            await bench.create(4)
            notes = [tmp_path / "first", tmp_path / "second"]
            program = [sys.executable, "-m", processing_member.__name__]
            members = [
                await asyncio.create_subprocess_exec(
                    *program, broker.bootstrap, bench.topic, bench.group, str(path), protocol
                )
                for path in notes
            ]
            expected = numbered(1_500)
            writing = asyncio.create_task(bench.write(expected[:500]))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while not all(path.exists() and path.stat().st_size for path in notes):
                        await asyncio.sleep(0.02)
                        if writing.done():
                            await bench.write(expected[:20])  # every key, so that each member gets some
                    members[0].kill()
                    await members[0].wait()
                    await writing
                    await bench.write(expected[500:])
                    while not set(_values(notes)) >= {value.decode() for value in expected}:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            finally:
                for member in members:
                    if member.returncode is None:
                        member.terminate()
                        await member.wait()


def _values(notes: Sequence[Path]) -> list[str]:
    return [line.split()[1] for path in notes for line in path.read_text().splitlines() if " " in line]


@protocols
async def test_a_broker_that_restarts_is_found_again(protocol: str) -> None:
    with run_broker(QUICK_SETTINGS) as broker:
        broker.create_topic("topic", partitions=2)
        async with client_of(broker.bootstrap) as cluster:
            await write(cluster, numbered(50))
            async with consumer_of(broker.bootstrap, protocol) as consumer:
                assert sorted(await read(consumer, 50)) == numbered(50)
                await consumer.commit()
                for first, end in ((50, broker.kill), (100, broker.stop)):
                    await asyncio.to_thread(end)
                    await asyncio.to_thread(broker.restart)
                    await write(cluster, numbered(50, first))
                    assert sorted(await read(consumer, 50)) == numbered(50, first)


@protocols
async def test_a_coordinator_that_dies_is_replaced_and_members_stay(protocol: str) -> None:
    """Three brokers; the coordinator of the group, which also leads partitions, is killed under load."""
    with run_cluster(3, QUICK_SETTINGS) as brokers:
        brokers.create_topic("topic", partitions=4)
        async with client_of(brokers.bootstrap) as cluster:
            await write(cluster, numbered(40))
            one = consumer_of(brokers.bootstrap, protocol)
            two = consumer_of(brokers.bootstrap, protocol)
            async with one, two:
                found: defaultdict[bytes, int] = defaultdict(int)

                async def until(count: int) -> None:
                    async with asyncio.timeout(PATIENCE_S):
                        while len(found) < count or not (one.assignment and two.assignment):
                            for each in (one, two):
                                for record in await each.poll(timeout_ms=50):
                                    found[record.value] += 1

                await until(40)
                coordinator = (await Groups(cluster).describe("group")).coordinator_id
                await asyncio.to_thread(brokers.kill, coordinator)
                writing = asyncio.create_task(write(cluster, numbered(200, 40)))
                await until(240)
                await writing
                assert set(found) == set(numbered(240))
                async with asyncio.timeout(PATIENCE_S):
                    while sum(map(len, (one.assignment, two.assignment))) < 4:
                        for each in (one, two):
                            await each.poll(timeout_ms=50)
                assert not one.assignment & two.assignment


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(f"assigned {len(partitions)}")

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(f"lost {len(partitions)}")


@pytest.mark.parametrize(
    ("protocol", "joining", "heartbeat"),
    [
        ("consumer", "ConsumerGroupHeartbeat", "ConsumerGroupHeartbeat"),
        ("classic", "JoinGroup", "Heartbeat"),
    ],
)
async def test_a_member_that_was_refused_joins_again_with_the_next_call(
    protocol: str, joining: str, heartbeat: str
) -> None:
    """A right may be granted later. Before, the consumer received nothing more, and said nothing."""
    told = Told()
    with run_broker(QUICK_SETTINGS) as broker:
        broker.create_topic("topic", partitions=1)
        broker.faults.add(api=joining, error="GROUP_AUTHORIZATION_FAILED", times=1)
        async with consumer_of(broker.bootstrap, protocol, topics=None) as consumer:
            await consumer.subscribe(["topic"], listener=told)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(GroupAuthorizationFailed):
                    await consumer.get_one()
                while not consumer.assignment:
                    await consumer.poll(timeout_ms=100)
                broker.faults.add(api=heartbeat, error="GROUP_AUTHORIZATION_FAILED", times=1)
                with pytest.raises(GroupAuthorizationFailed):
                    await consumer.get_one()
                assert not consumer.assignment
                while not consumer.assignment:
                    await consumer.poll(timeout_ms=100)
    assert [each for each in told.events if each != "assigned 0"][:3] == [
        "assigned 1",
        "lost 1",
        "assigned 1",
    ]


async def test_a_group_is_joined_again_after_partitions_by_hand() -> None:
    """Its commits are those of the member again; without one, the coordinator refuses them."""
    with run_broker(QUICK_SETTINGS) as broker:
        topic = broker.create_topic("topic", partitions=1)
        async with (
            asyncio.timeout(PATIENCE_S),
            consumer_of(broker.bootstrap, "consumer") as consumer,
        ):
            await consumer.unsubscribe()
            await consumer.assign([TopicPartition(topic, 0)])
            await consumer.unsubscribe()
            await consumer.subscribe([topic])
            while not consumer.assignment:
                await consumer.poll(timeout_ms=100)
            assert await consumer.commit({TopicPartition(topic, 0): 0})


@protocols
async def test_a_consumer_reads_from_the_nearest_replica_while_it_lives(
    protocol: str,
) -> None:
    """The leader names broker `near` to consumers, as a rack-aware selector does (KIP-392)."""
    settings = {**QUICK_SETTINGS, "default.replication.factor": "3"}
    with run_cluster(3, settings) as brokers:
        brokers.create_topic("topic", partitions=1)
        leader = brokers.leader("topic")
        near = next(each for each in (1, 2, 3) if each != leader)
        brokers.wait_in_sync("topic")

        def name_near(_request: FetchRequest, response: FetchResponse) -> None:
            for topic in response.responses:
                for row in topic.partitions:
                    row.preferred_read_replica = near

        brokers.broker(leader).faults.add(
            api="Fetch", when=lambda request: request.rack_id == "here", change=name_near
        )
        served = brokers.broker(near).faults.add(
            api="Fetch", when=lambda request: request.rack_id == "here", observe=True
        )
        async with (
            client_of(brokers.bootstrap) as cluster,
            consumer_of(brokers.bootstrap, protocol, client_rack="here") as consumer,
        ):
            await write(cluster, numbered(20))
            assert sorted(await read(consumer, 20)) == numbered(20)
            await served.hit(1)
            assert served.hits
            await asyncio.to_thread(brokers.kill, near)
            await write(cluster, numbered(20, 20))
            assert sorted(await read(consumer, 20)) == numbered(20, 20)
