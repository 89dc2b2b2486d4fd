"""Brokers whose only listener asks who they are: they follow each other all the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.security.settings import SecuritySettings
from barnabas.cluster.stores.topics import create_topic
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.node.broker import Broker
from tests.scenario.replication.support import eventually
from tests.scenario.security.sasl_broker import ADMIN, ADMIN_PASSWORD, SETTINGS
from tests.support.embedded_cluster import shared_store
from tests.support.plain_producer import OutgoingRecord, Producer

T0 = TopicPartition("t", 0)
SESSION_MS = 2_000


def member(path: Path, broker_id: int, **more: str) -> Broker:
    properties = {
        **SETTINGS,
        "connections.max.reauth.ms": str(SESSION_MS),
        "broker.id": str(broker_id),
        "log.dirs": str(path / str(broker_id)),
        "zookeeper.connect": "the-store-of-the-test",
        "offsets.topic.num.partitions": "1",
    }
    return Broker(BrokerConfig.load({**properties, **more}))


@asynccontextmanager
async def client_of(*brokers: Broker) -> AsyncIterator[ClusterClient]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="{ADMIN}" password="{ADMIN_PASSWORD}";',
    }
    addresses = [listener.endpoint for broker in brokers for listener in broker.bound_listeners]
    security = SecuritySettings.parse(given).secured()
    async with ClusterClient(
        addresses, clock=SystemClock(), randomness=random.SystemRandom(), security=security
    ) as cluster:
        yield cluster


def end_of(broker: Broker) -> int:
    assert broker._replicas is not None
    partition = broker._replicas.find(T0)
    return -1 if partition is None else partition.log.log_end_offset


async def test_a_follower_logs_in_to_its_leader_again_and_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with shared_store(tmp_path, monkeypatch) as store, AsyncExitStack() as stack:
        brokers = [member(tmp_path, 1), member(tmp_path, 2)]
        for each in brokers:
            await each.startup()
            stack.push_async_callback(each.shutdown)
        await create_topic(store.connect(), "t", Uuid(bytes(range(16))), {0: [1, 2]}, {})
        cluster = await stack.enter_async_context(client_of(*brokers))
        producer = Producer(cluster)
        for number in range(4):
            assert await producer.send("t", [OutgoingRecord(None, b"%d" % number)]) == 1
            await eventually(lambda number=number: {end_of(each) for each in brokers} == {number + 1})  # type: ignore[misc]
            await asyncio.sleep(0.6 * SESSION_MS / 1_000)


async def test_a_broker_with_a_wrong_password_follows_no_leader(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    wrong = SETTINGS[key].replace(f'password="{ADMIN_PASSWORD}"', 'password="wrong"')
    async with shared_store(tmp_path, monkeypatch) as store, AsyncExitStack() as stack:
        leader, stranger = member(tmp_path, 1), member(tmp_path, 2, **{key: wrong})
        for each in (leader, stranger):
            await each.startup()
            stack.push_async_callback(each.shutdown)
        await create_topic(store.connect(), "t", Uuid(bytes(range(16))), {0: [1, 2]}, {})
        cluster = await stack.enter_async_context(client_of(leader))
        await Producer(cluster, acks=1).send("t", [OutgoingRecord(None, b"secret")])
        await eventually(lambda: end_of(leader) == 1)
        await asyncio.sleep(1)
        assert end_of(stranger) <= 0
