"""kafka-topics: what an operator sees of a cluster that is whole, and of one that has lost a broker."""

from __future__ import annotations

import re

import pytest

from tests.clients.cluster.conftest import ClusterTopic
from tests.clients.matrix import TOOLS
from tests.clients.tools import TOPICS, tool
from tests.support.clusters import AnyCluster

pytestmark = [
    pytest.mark.client(TOOLS),
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.xdist_group("cluster-tools"),
]
ROW = re.compile(r"Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)")
Rows = dict[tuple[str, int], tuple[str, list[int], set[int]]]


def described(bootstrap: str, *arguments: str) -> Rows:
    """Leader, replicas and ISR by topic and partition."""
    said = tool(TOPICS, "--bootstrap-server", bootstrap, "--describe", *arguments)
    return {
        (topic, int(partition)): (leader, numbers(replicas), set(numbers(isr)))
        for topic, partition, leader, replicas, isr in ROW.findall(said)
    }


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


@pytest.mark.feature("kafka-topics (cluster)")
def test_leaders_and_replicas_are_those_of_the_assignment(three: AnyCluster, new_topic: ClusterTopic) -> None:
    topic = new_topic({0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    assert described(three.bootstrap, "--topic", topic) == {
        (topic, 0): ("1", [1, 2, 3], {1, 2, 3}),
        (topic, 1): ("2", [2, 3, 1], {1, 2, 3}),
        (topic, 2): ("3", [3, 1, 2], {1, 2, 3}),
    }
    assert described(three.bootstrap, "--under-replicated-partitions") == {}
    assert described(three.bootstrap, "--unavailable-partitions") == {}


@pytest.mark.feature("kafka-topics (cluster)")
def test_a_dead_broker_shows_in_every_list(three: AnyCluster, new_topic: ClusterTopic) -> None:
    shared = new_topic({0: [1, 2, 3]}, min_insync_replicas=2)
    tight = new_topic({0: [2, 3]}, min_insync_replicas=2)
    alone = new_topic({0: [3]})
    three.broker(3).kill()
    three.wait_for(
        lambda: three.view([shared]).of(shared)[0].isr == (1, 2), what="broker 3 is out of the ISR"
    )
    three.wait_for(lambda: three.leader(alone) == -1, what="its own partition has no leader")

    def mine(*arguments: str) -> Rows:
        found = described(three.bootstrap, *arguments)
        return {key: row for key, row in found.items() if key[0] in (shared, tight, alone)}

    behind = mine("--under-replicated-partitions")
    behind.pop((alone, 0), None)
    assert behind == {(shared, 0): ("1", [1, 2, 3], {1, 2}), (tight, 0): ("2", [2, 3], {2})}
    unavailable = mine("--unavailable-partitions")
    assert {key: row[:2] for key, row in unavailable.items()} == {(alone, 0): ("none", [3])}
    assert set(mine("--at-min-isr-partitions")) >= {(shared, 0)}
    under = set(mine("--under-min-isr-partitions"))
    assert (tight, 0) in under
    assert (shared, 0) not in under


@pytest.mark.feature("kafka-topics (cluster)")
def test_a_created_topic_spreads_over_brokers(three: AnyCluster) -> None:
    made = ("--topic", "spread", "--partitions", "6", "--replication-factor", "3")
    assert "Created topic spread" in tool(TOPICS, "--bootstrap-server", three.bootstrap, "--create", *made)
    three.wait_in_sync(["spread"], 6)
    rows = described(three.bootstrap, "--topic", "spread")
    assert sorted(leader for leader, _, _ in rows.values()) == ["1", "1", "2", "2", "3", "3"]
    assert all(set(replicas) == {1, 2, 3} for _, replicas, _ in rows.values())


@pytest.mark.feature("kafka-topics (cluster)")
def test_more_replicas_than_brokers_are_refused(three: AnyCluster) -> None:
    made = ("--topic", "too-many", "--partitions", "1", "--replication-factor", "4")
    tool(TOPICS, "--bootstrap-server", three.bootstrap, "--create", *made, exit_code=1)
    assert "too-many" not in tool(TOPICS, "--bootstrap-server", three.bootstrap, "--list").split()
