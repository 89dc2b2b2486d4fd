"""kafka-reassign-partitions and kafka-leader-election on partitions that really move."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.clients.cluster.conftest import ClusterTopic
from tests.clients.matrix import TOOLS
from tests.clients.tools import CONFIGS, LEADER_ELECTION, REASSIGN_PARTITIONS, tool
from tests.support import wire
from tests.support.clusters import AnyCluster

pytestmark = [
    pytest.mark.client(TOOLS),
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.compatibility,
    pytest.mark.xdist_group("cluster-tools"),
]
SLOW_BYTES_S = 1_000
BATCHES = 400
"""Twenty megabytes: a fetch brings one, and then the throttle's window has to pass."""


def plan(path: Path, topic: str, replicas: Mapping[int, Sequence[int]]) -> Path:
    rows = [
        {"topic": topic, "partition": number, "replicas": list(nodes)} for number, nodes in replicas.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return path


def reassign(three: AnyCluster, *arguments: str) -> str:
    return tool(REASSIGN_PARTITIONS, "--bootstrap-server", three.bootstrap, *arguments)


def fill(three: AnyCluster, topic: str, batches: int = BATCHES) -> None:
    """Enough for a throttled copy to take a while."""
    leader = three.broker(three.leader(topic))
    with wire.WireConnection(leader.host, leader.port) as connection:
        for _ in range(batches):
            error, _ = connection.produce(topic, wire.batch([bytes(50_000)]))
            assert error == 0, f"error {error} writing"


@pytest.mark.feature("kafka-reassign-partitions (cluster)")
def test_a_generated_plan_moves_a_topic(three: AnyCluster, new_topic: ClusterTopic, tmp_path: Path) -> None:
    topic = new_topic({0: [1], 1: [1]})
    fill(three, topic, 3)
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    said = reassign(three, "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3", "--generate")
    current, proposed = (line for line in said.splitlines() if line.startswith("{"))
    assert {tuple(row["replicas"]) for row in json.loads(current)["partitions"]} == {(1,)}
    file = tmp_path / "plan.json"
    file.write_text(proposed)
    assert "Successfully started" in reassign(three, "--reassignment-json-file", str(file), "--execute")
    goal = {row["partition"]: tuple(row["replicas"]) for row in json.loads(proposed)["partitions"]}

    def has_moved() -> bool:
        seen = three.view([topic]).of(topic)
        return {number: each.replicas for number, each in seen.items()} == goal and all(
            each.in_sync for each in seen.values()
        )

    three.wait_for(has_moved, what="the replicas are where the plan wants them")
    verified = reassign(three, "--reassignment-json-file", str(file), "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert f"Reassignment of partition {topic}-1 is completed." in verified
    leader = three.broker(three.leader(topic))
    with wire.WireConnection(leader.host, leader.port) as connection:
        assert connection.latest_offset(topic) == 3


@pytest.mark.feature("kafka-reassign-partitions (cluster)")
def test_a_throttled_move_is_seen_under_way_and_cancelled(
    three: AnyCluster, new_topic: ClusterTopic, tmp_path: Path
) -> None:
    topic = new_topic({0: [1, 2]})
    fill(three, topic)
    file = str(plan(tmp_path / "plan.json", topic, {0: [3, 2]}))
    throttled = ("--execute", "--throttle", str(SLOW_BYTES_S))
    said = reassign(three, "--reassignment-json-file", file, *throttled)
    assert f"The inter-broker throttle limit was set to {SLOW_BYTES_S} B/s" in said
    listed = reassign(three, "--list")
    assert f"{topic}-0: replicas: 3,2,1. adding: 3. removing: 1." in listed
    assert f"Reassignment of partition {topic}-0 is still in progress." in reassign(
        three, "--reassignment-json-file", file, "--verify"
    )
    of = ("--entity-type", "topics", "--entity-name", topic)
    topic_configs = tool(CONFIGS, "--bootstrap-server", three.bootstrap, *of, "--describe")
    assert "leader.replication.throttled.replicas=0:1,0:2" in topic_configs
    assert "follower.replication.throttled.replicas=0:3" in topic_configs
    assert "Successfully cancelled" in reassign(three, "--reassignment-json-file", file, "--cancel")
    three.wait_for(
        lambda: set(three.view([topic]).of(topic)[0].replicas) == {1, 2}, what="the old replicas are back"
    )
    assert "No partition reassignments found." in reassign(three, "--list")


@pytest.mark.feature("kafka-reassign-partitions (cluster)")
def test_verifying_a_finished_move_takes_its_throttle_away(
    three: AnyCluster, new_topic: ClusterTopic, tmp_path: Path
) -> None:
    topic = new_topic({0: [1, 2]})
    fill(three, topic, 4)
    file = str(plan(tmp_path / "plan.json", topic, {0: [2, 3]}))
    reassign(three, "--reassignment-json-file", file, "--execute", "--throttle", "50000000")
    three.wait_for(lambda: three.view([topic]).of(topic)[0].replicas == (2, 3), what="the move is done")
    verified = reassign(three, "--reassignment-json-file", file, "--verify")
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified
    at = ("--bootstrap-server", three.bootstrap, "--entity-type")
    assert "throttled" not in tool(CONFIGS, *at, "topics", "--entity-name", topic, "--describe")
    assert "throttled" not in tool(CONFIGS, *at, "brokers", "--entity-name", "2", "--describe")


@pytest.mark.feature("kafka-leader-election (cluster)")
def test_the_preferred_leader_takes_over_again(three: AnyCluster, new_topic: ClusterTopic) -> None:
    topic = new_topic({0: [2, 1, 3]})
    three.broker(2).terminate()
    three.wait_for(lambda: three.leader(topic) == 1, what="the next replica leads")
    three.broker(2).start()
    three.wait_in_sync([topic], 1)
    assert three.leader(topic) == 1
    chosen = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    said = tool(LEADER_ELECTION, "--bootstrap-server", three.bootstrap, *chosen)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in said
    three.wait_for(lambda: three.leader(topic) == 2, what="the preferred replica leads")


@pytest.mark.feature("kafka-leader-election (cluster)")
def test_an_unclean_leader_is_elected_only_on_demand(three: AnyCluster, new_topic: ClusterTopic) -> None:
    topic = new_topic({0: [1, 2]})
    three.broker(2).kill()
    three.wait_for(lambda: three.view([topic]).of(topic)[0].isr == (1,), what="broker 2 is out of the ISR")
    fill(three, topic, 1)
    three.broker(1).kill()
    three.broker(2).start()
    three.wait_for(lambda: three.leader(topic) == -1, what="nobody in sync is left")
    chosen = ("--election-type", "unclean", "--topic", topic, "--partition", "0")
    said = tool(LEADER_ELECTION, "--bootstrap-server", three.broker(3).bootstrap, *chosen)
    assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in said
    three.wait_for(lambda: three.leader(topic) == 2, what="the stale replica leads")
    with wire.WireConnection(three.broker(2).host, three.broker(2).port) as connection:
        assert connection.latest_offset(topic, patience_s=10.0) == 0
