"""The Java admin client on three brokers: one program, run once, a test for each thing it saw."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.peers.kafka import class_path, java_executable
from tests.support.clusters import AnyCluster

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.compatibility,
    pytest.mark.xdist_group("cluster-tools"),
]
PROGRAM = Path(__file__).with_name("ClusterAdmin.java")
EXPECTED = {
    "cluster": "[1, 2, 3] rack-1,rack-2,rack-3 controller true",
    "create": "2 2",
    "describe": "0 led by 2 of [2, 1] in sync [1, 2]; 1 led by 3 of [3, 2] in sync [2, 3]",
    "refused": "InvalidReplicationFactorException",
    "reassign": "0 led by 1 of [1, 3] in sync [1, 3] left false",
    "no-replica": "InvalidReplicaAssignmentException",
    "elect": "ElectionNotNeededException UnknownTopicOrPartitionException",
    "log-dirs": "[2, 3]",
    "broker-config": "777777 DYNAMIC_BROKER_CONFIG",
    "offsets": "0",
    "more-partitions": "2 led by 1 of [1, 2] in sync [1, 2]",
    "delete": "false",
}


@pytest.fixture(scope="module")
def seen(one_cluster: AnyCluster) -> dict[str, str]:
    command = [java_executable(), "-Xmx256m", "-cp", class_path(), str(PROGRAM)]
    done = subprocess.run(
        [*command, one_cluster.bootstrap, "java-admin"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


@pytest.mark.parametrize("step", EXPECTED)
def test_the_java_admin_client_sees_what_it_asked_for(step: str, seen: dict[str, str]) -> None:
    assert seen.get(step) == EXPECTED[step]
