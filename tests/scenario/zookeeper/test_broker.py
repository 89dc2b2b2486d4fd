"""A broker whose store is ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster.coordination.contract import NoAuth
from barnabas.cluster.znodes.brokers import BrokerIdZnode
from barnabas.cluster.zookeeper import open_zookeeper
from barnabas.core.clock import SystemClock
from tests.support.broker import BarnabasBroker
from tests.support.cluster import cluster
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S
from tests.support.wire import WireConnection, batch
from tests.support.zookeeper import running_zookeeper

NOT_LEADER_OR_FOLLOWER = 6


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


def test_a_leader_that_stood_still_beyond_its_session_acknowledges_nothing(
    zookeeper: str, tmp_path: Path
) -> None:
    """Another broker leads by then. The old leader has a new session before it receives that."""
    settings = {"auto.leader.rebalance.enable": "false"}
    with cluster(2, tmp_path, zookeeper, settings) as two:
        old, new = two.brokers
        admin = AdminClient({"bootstrap.servers": two.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic("topic", 1, replica_assignment=[[1, 2]])]).values():
            made.result(PATIENCE_S)
        with WireConnection(old.host, old.port) as to_old, WireConnection(new.host, new.port) as to_new:
            two.wait_for(lambda: to_old.produce("topic", batch([b"before"]), acks=-1)[0] == 0)
            old.stop()
            two.wait_for(lambda: to_new.produce("topic", batch([b"new leader"]), acks=1)[0] == 0)
            old.cont()
            two.wait_for(lambda: is_follower_of(new.id, old, to_old))
            end = to_new.latest_offset("topic")
            assert end == 2, "what a broker acknowledged that did not lead would be beyond this, or gone"


def is_follower_of(leader: int, broker: BarnabasBroker, connection: WireConnection) -> bool:
    """Whether the broker's metadata show the leader."""
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        assert connection.produce("topic", batch([b"too late"]), acks=1)[0] == NOT_LEADER_OR_FOLLOWER
    known = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(
        timeout=PATIENCE_S
    )
    partition = known.topics["topic"].partitions[0]
    return partition.leader == leader and len(partition.isrs) == 2


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
            two.wait_for(
                lambda: all("connection to ZooKeeper is lost" in each.output_text() for each in two.brokers)
            )
            for each in two.brokers:
                each.terminate()
