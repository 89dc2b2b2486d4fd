"""Preferred read replica of a consumer (KIP-392)."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.core.ids import BrokerId
from barnabas.replication.leader.replica_selector import RACK_AWARE_SELECTOR, ReplicaSelector
from barnabas.replication.partition.fetching import NO_REPLICA
from barnabas.replication.partition.leadership import LeaderAndIsr
from barnabas.replication.partition.partition import Partition
from tests.support.settings import broker_config
from tests.unit.replication.support import ME, OTHER, Replicas

THIRD = BrokerId(3)
ALL = (ME, OTHER, THIRD)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Five records, of which broker 2 has two and broker 3 has four, from the second on."""
    replicas = Replicas(str(tmp_path))
    led = replicas.lead(isr=ALL, replicas=ALL)
    for _ in range(5):
        replicas.append(led)
    led.update_follower(OTHER, 2, 0)
    led.update_follower(THIRD, 4, 1)
    return led


def choose(
    partition: Partition, rack: str, offset: int, *, selector: str | None = RACK_AWARE_SELECTOR
) -> int:
    metadata = MetadataCache("cluster")
    racks = {ME: "here", OTHER: "there", THIRD: "there"}
    metadata.put_brokers([BrokerInfo(each, (), rack=racks[each]) for each in ALL])
    settings = broker_config(replica_selector_class=selector)
    return ReplicaSelector(ME, settings, metadata).choose(partition, rack, offset)


@pytest.mark.parametrize(
    ("offset", "chosen"),
    [
        pytest.param(0, OTHER, id="broker 3 has deleted it"),
        pytest.param(1, THIRD, id="both have it, broker 3 is further"),
        pytest.param(4, THIRD, id="the end of broker 3"),
        pytest.param(5, NO_REPLICA, id="nobody there has it yet"),
    ],
)
def test_the_furthest_replica_of_the_rack_that_has_the_offset(
    partition: Partition, offset: int, chosen: int
) -> None:
    assert choose(partition, "there", offset) == chosen


def test_the_leader_serves_its_own_rack_and_racks_without_a_replica(partition: Partition) -> None:
    assert choose(partition, "here", 1) == NO_REPLICA
    assert choose(partition, "elsewhere", 1) == NO_REPLICA
    assert choose(partition, "there", 1, selector=None) == NO_REPLICA


def test_who_is_not_in_sync_is_not_read_from(partition: Partition) -> None:
    partition.leadership.isr = frozenset((ME, OTHER))
    assert choose(partition, "there", 1) == OTHER
    partition.leadership.isr = frozenset((ME,))
    assert choose(partition, "there", 1) == NO_REPLICA


def test_a_follower_redirects_no_consumer(partition: Partition) -> None:
    partition.become_follower(LeaderAndIsr(OTHER, 1, ALL, ALL))
    assert choose(partition, "there", 1) == NO_REPLICA
