"""The transition tables, and that an illegal change is logged and not made."""

from __future__ import annotations

import logging

import pytest

from barnabas.cluster.znodes.layout import ReplicaAssignment
from barnabas.controller.state.assignments import origin_replicas, reassigned_to, target_replicas, without
from barnabas.controller.state.partition_states import PARTITION_TRANSITIONS, PartitionStatus
from barnabas.controller.state.replica_states import (
    REPLICA_TRANSITIONS,
    PartitionReplica,
    ReplicaStatus,
)
from barnabas.core.ids import TopicPartition
from tests.unit.controller.scripted_cluster import Cluster

P, R = PartitionStatus, ReplicaStatus

PARTITION_CHANGES = {
    (P.NON_EXISTENT, P.NEW),
    *((former, later) for former in (P.NEW, P.ONLINE, P.OFFLINE) for later in (P.ONLINE, P.OFFLINE)),
    (P.OFFLINE, P.NON_EXISTENT),
}

REPLICA_CHANGES = {
    (R.NON_EXISTENT, R.NEW),
    *(
        (former, later)
        for former in (R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE)
        for later in (R.ONLINE, R.OFFLINE)
    ),
    (R.OFFLINE, R.DELETION_STARTED),
    (R.OFFLINE, R.DELETION_INELIGIBLE),
    (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
    (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
    (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
}


@pytest.mark.parametrize("former", P)
@pytest.mark.parametrize("later", P)
def test_the_changes_of_a_partition_are_apache_kafkas(
    former: PartitionStatus, later: PartitionStatus
) -> None:
    assert PARTITION_TRANSITIONS.allows(former, later) == ((former, later) in PARTITION_CHANGES)


@pytest.mark.parametrize("former", R)
@pytest.mark.parametrize("later", R)
def test_the_changes_of_a_replica_are_apache_kafkas(former: ReplicaStatus, later: ReplicaStatus) -> None:
    assert REPLICA_TRANSITIONS.allows(former, later) == ((former, later) in REPLICA_CHANGES)


async def test_an_illegal_change_of_a_partition_is_logged_and_not_made(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("t", {0: [2, 3], 1: [2, 3]})
    partition = TopicPartition("t", 0)
    with caplog.at_level(logging.ERROR):
        cluster.term.partitions.change([partition], P.NEW)
        cluster.term.partitions.change([partition], P.NON_EXISTENT)
    assert len(caplog.records) == 2
    assert cluster.term.context.partition_states[partition] is P.ONLINE


async def test_an_illegal_change_of_a_replica_is_logged_and_does_not_hold_up_the_others(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("t", {0: [2, 3]})
    legal, illegal = (PartitionReplica(TopicPartition("t", 0), each) for each in (2, 9))
    with caplog.at_level(logging.ERROR):
        await cluster.term.replicas.change([illegal, legal], R.OFFLINE)
    assert "NonExistentReplica" in caplog.text
    states = cluster.term.context.replica_states
    assert states[legal] is R.OFFLINE
    assert illegal not in states


def test_a_move_starts_from_the_origin() -> None:
    start = ReplicaAssignment((1, 2, 3))
    moving = reassigned_to(start, (4, 5, 1))
    assert moving == ReplicaAssignment((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert origin_replicas(moving) == (1, 2, 3)
    assert target_replicas(moving) == (4, 5, 1)
    elsewhere = reassigned_to(moving, (6, 1, 2))
    assert elsewhere == ReplicaAssignment((6, 1, 2, 3), (6,), (3,))
    back = reassigned_to(moving, origin_replicas(moving))
    assert back == start
    assert without(moving, 4) == ReplicaAssignment((5, 1, 2, 3), (5,), (2, 3))
