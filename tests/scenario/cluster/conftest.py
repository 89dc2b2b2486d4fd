"""One cluster of three real brokers for the tests of a module that do not break it for good."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.zookeeper import (
    ZooKeeper,
    fresh_chroot,
    shared_zookeeper_server,
    zookeeper_server_directory,
)

__all__ = ["fresh_chroot", "shared_zookeeper_server", "zookeeper_server_directory"]

SETTINGS = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "group.initial.rebalance.delay.ms": 0,
    "replica.lag.time.max.ms": 4_000,
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: ZooKeeper) -> Iterator[Cluster]:
    with cluster(3, tmp_path_factory.mktemp("cluster"), zookeeper_server.chroot(), SETTINGS) as running:
        yield running
