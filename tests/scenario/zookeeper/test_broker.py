"""A broker whose store is ZooKeeper."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster.broker_znodes import BrokerIdZnode
from barnabas.cluster.coordination import NoAuth
from barnabas.cluster.zookeeper import open_zookeeper
from barnabas.core.clock import SystemClock
from tests.support.broker import BarnabasBroker
from tests.support.cluster import cluster
from tests.support.ports import free_port
from tests.support.wire import WireConnection
from tests.support.zookeeper import running_zookeeper


def present(zookeeper: str, path: str) -> bool:
    """Whether a node exists, asked in a session of its own."""

    async def ask() -> bool:
        async with open_zookeeper(
            zookeeper, session_timeout_ms=10_000, connection_timeout_ms=60_000, clock=SystemClock()
        ) as znodes:
            return await znodes.exists(path) is not None

    return asyncio.run(ask())


def test_what_a_broker_made_is_there_after_its_restart(zookeeper: str, tmp_path: Path) -> None:
    with cluster(1, tmp_path, zookeeper) as one:
        broker = one.brokers[0]
        with WireConnection(broker.host, broker.port) as connection:
            assert connection.create_topic("orders", partitions=2) == 0
        assert present(zookeeper, "/brokers/topics/orders")
        assert present(zookeeper, BrokerIdZnode.path(1))
        broker.terminate()
        assert not present(zookeeper, BrokerIdZnode.path(1))
        broker.restart()
        with WireConnection(broker.host, broker.port) as connection:
            assert connection.create_topic("orders") == 36


def test_a_killed_broker_comes_back_when_its_session_has_ended(zookeeper: str, tmp_path: Path) -> None:
    with cluster(1, tmp_path, zookeeper) as one:
        broker = one.brokers[0]
        broker.kill()
        broker.restart()
        assert present(zookeeper, BrokerIdZnode.path(1))


def test_a_broker_that_stands_still_is_missed(zookeeper: str, tmp_path: Path) -> None:
    with cluster(1, tmp_path, zookeeper) as one:
        one.brokers[0].stop()
        one.wait_for(lambda: not present(zookeeper, BrokerIdZnode.path(1)))


def test_with_access_control_the_tree_is_the_brokers(zookeeper: str, tmp_path: Path) -> None:
    settings = {"zookeeper.set.acl": "true", "zookeeper.auth": "kafka:secret"}
    with cluster(1, tmp_path, zookeeper, settings) as one:
        broker = one.brokers[0]
        with WireConnection(broker.host, broker.port) as connection:
            assert connection.create_topic("orders") == 0

        async def meddle() -> None:
            async with open_zookeeper(
                zookeeper, session_timeout_ms=10_000, connection_timeout_ms=60_000, clock=SystemClock()
            ) as znodes:
                await znodes.delete("/controller")

        with pytest.raises(NoAuth, match="/controller"):
            asyncio.run(meddle())


def test_without_a_zookeeper_the_start_fails_with_its_address(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = {"zookeeper.connect": address, "zookeeper.connection.timeout.ms": 500}
    broker = BarnabasBroker(tmp_path, settings=settings)
    with pytest.raises(RuntimeError, match=f"no ZooKeeper answers at {address} within 500 ms"):
        broker.start()


def test_a_broker_that_has_lost_its_zookeeper_can_be_stopped(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path / "zookeeper") as server:
        settings = {"zookeeper.session.timeout.ms": 1_000}
        with cluster(2, tmp_path, server.connect, settings) as two:
            admin = AdminClient({"bootstrap.servers": two.bootstrap})
            admin.create_topics([NewTopic("orders", 4, 2)])["orders"].result(60)
            server.kill()
            two.wait_for(lambda: all("may expire" in each.output_text() for each in two.brokers))
            for each in two.brokers:
                each.terminate()
