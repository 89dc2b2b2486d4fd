"""Operating a cluster by the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.commands import run_command
from tests.support.zookeeper import ZooKeeper


class Barnabas:
    def __init__(self, bootstrap: str) -> None:
        self._environment = {**os.environ, "BARNABAS_BOOTSTRAP": bootstrap}

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        ended = run_command(*arguments, stdin=stdin.encode(), environment=self._environment)
        stdout, stderr = ended.stdout.decode(), ended.stderr.decode()
        assert ended.code == code, stdout + stderr
        return stdout if not code else stdout + stderr


@pytest.fixture
def barnabas(three: Cluster) -> Barnabas:
    return Barnabas(three.bootstrap)


def replicas_of(barnabas: Barnabas, topic: str) -> dict[int, list[int]]:
    (described,) = json.loads(barnabas("topic", "describe", topic, "--json"))
    return {row["partition"]: row["replicas"] for row in described["partitions"]}


def test_status_shows_who_is_there_and_what_is_missing(three: Cluster, barnabas: Barnabas) -> None:
    barnabas("topic", "create", "status", "--partitions", "2", "--replication-factor", "3")
    seen = json.loads(barnabas("cluster", "status", "--json"))
    assert [row["id"] for row in seen["brokers"]] == [1, 2, 3]
    assert seen["controller"] in (1, 2, 3)
    assert seen["offline"] == seen["under_replicated"] == seen["silent_brokers"] == []
    assert f"metadata of the broker at {seen['told_by']}" in barnabas("cluster", "status", "--check")
    three.brokers[0].kill()
    # The controller does not miss the broker before its session has run out, but its clients do.
    soon = json.loads(barnabas("cluster", "status", "--json"))
    assert soon["silent_brokers"] == [1] or soon["under_replicated"]
    three.wait_for(lambda: json.loads(barnabas("cluster", "status", "--json"))["under_replicated"])
    shown = barnabas("cluster", "status", "--check", code=1)
    assert "down" in shown
    assert "status-0" in shown
    three.brokers[0].start()
    three.wait_for(lambda: not json.loads(barnabas("cluster", "status", "--json"))["under_replicated"])


def test_leadership_goes_back_to_the_preferred_replicas(three: Cluster, barnabas: Barnabas) -> None:
    barnabas("topic", "create", "preferred", "--partitions", "3", "--replication-factor", "3")
    three.brokers[1].restart()

    def is_in_sync() -> bool:
        return not json.loads(barnabas("cluster", "status", "--json"))["under_replicated"]

    three.wait_for(is_in_sync)
    assert json.loads(barnabas("cluster", "status", "--json"))["not_preferred"]
    assert "elected" in barnabas("leader", "elect")
    three.wait_for(lambda: not json.loads(barnabas("cluster", "status", "--json"))["not_preferred"])
    assert (
        barnabas("leader", "elect", "--topic", "preferred")
        == "no election needed: every partition has its preferred leader\n"
    )


def test_partitions_move_and_keep_their_records(three: Cluster, barnabas: Barnabas) -> None:
    barnabas("topic", "create", "moving", "--partitions", "2", "--replication-factor", "1")
    barnabas("produce", "moving", stdin="one\ntwo\nthree\n")
    plan = json.loads(
        barnabas("reassign", "start", "--topic", "moving", "--replication-factor", "3", "--dry-run")
    )
    assert len(plan["partitions"]) == 2
    assert "have moved" in barnabas(
        "reassign", "start", "--topic", "moving", "--replication-factor", "3", "--wait",
        "--throttle", "10000000",
    )  # fmt: skip
    assert all(len(replicas) == 3 for replicas in replicas_of(barnabas, "moving").values())
    assert barnabas("reassign", "status") == "no partition is moving\n"
    barnabas(
        "reassign", "start", "--topic", "moving", "--replication-factor", "1", "--brokers", "2", "--wait"
    )
    assert replicas_of(barnabas, "moving") == {0: [2], 1: [2]}
    read = barnabas("consume", "moving", "--from-beginning", "--count", "3")
    assert sorted(read.split()) == ["one", "three", "two"]


def test_a_broker_is_emptied_before_it_leaves(three: Cluster, barnabas: Barnabas) -> None:
    barnabas("topic", "create", "leaving", "--partitions", "4", "--replication-factor", "2")
    # Topics with three replicas on three brokers have nowhere to go.
    assert "only 2 brokers" in barnabas("cluster", "decommission", "3", code=1)
    for topic in ("status", "preferred"):
        barnabas("topic", "delete", topic)
    assert "it can be stopped" in barnabas("cluster", "decommission", "3")
    seen = json.loads(barnabas("cluster", "status", "--json"))
    assert next(row for row in seen["brokers"] if row["id"] == 3)["replicas"] == 0


def test_a_broker_does_not_wait_for_heirs_that_are_gone(tmp_path: Path, zookeeper_server: ZooKeeper) -> None:
    # A producer that pauses between two attempts does so for longer than the stop of a broker takes.
    patient = {"controlled.shutdown.retry.backoff.ms": 3_600_000}
    with cluster(3, tmp_path, zookeeper_server.chroot(), patient) as three:
        barnabas = Barnabas(three.bootstrap)
        barnabas("topic", "create", "pair", "--partitions", "2", "--replication-factor", "2")
        first, second = replicas_of(barnabas, "pair")[0]
        three.brokers[first - 1].terminate()
        three.brokers[second - 1].terminate()
