"""Moving partitions, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.cluster.coordination.contract import Operation, Result, SetData
from barnabas.cluster.stores.topics import add_partitions, read_topic
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode, ReplicaAssignment, TopicZnode
from barnabas.cluster.znodes.notifications import DeleteTopicsZnode, IsrChangeZnode, ReassignPartitionsZnode
from barnabas.core.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import TopicPartition
from tests.unit.controller.scripted_cluster import Cluster, set_partition_state

T0 = TopicPartition("t", 0)


async def assignment(cluster: Cluster, topic: str = "t", partition: int = 0) -> ReplicaAssignment:
    info, _ = await read_topic(cluster.admin, topic)
    return info.assignment[partition]


async def catch_up(cluster: Cluster, *isr: int, notify: bool = False) -> None:
    """The leader of t-0 finds these replicas in sync and writes it down, as a broker does."""
    state = await cluster.state("t")
    await set_partition_state(cluster.admin, "t", 0, state._replace(isr=isr))
    if notify:
        await cluster.admin.create(IsrChangeZnode.CREATE_PATH, IsrChangeZnode.encode([T0]), sequential=True)
    await cluster.settle()


async def four(cluster: Cluster) -> None:
    await cluster.up(4)
    await cluster.settle()


async def test_new_replicas_are_added_before_old_ones_go(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    before = await cluster.state("t")
    controller = cluster.active.controller
    assert await controller.alter_partition_reassignments({T0: [3, 4]}) == {T0: None}
    await cluster.settle()
    assert await assignment(cluster) == ReplicaAssignment((3, 4, 2), (4,), (2,))
    assert cluster.brokers[4].roles[T0].is_new
    assert cluster.brokers[4].roles[T0].leader == 2
    assert cluster.brokers[2].roles[T0].adding_replicas == [4]
    assert cluster.brokers[2].roles[T0].leader_epoch > before.leader_epoch
    assert await controller.list_partition_reassignments() == {T0: await assignment(cluster)}

    await catch_up(cluster, 2, 3, 4)
    assert await assignment(cluster) == ReplicaAssignment((3, 4))
    state = await cluster.state("t")
    assert (state.leader, set(state.isr)) == (3, {3, 4}), "the leader had to go"
    assert cluster.brokers[2].deleted == {T0}
    assert T0 not in cluster.brokers[2].roles
    assert cluster.brokers[4].roles[T0].leader == 3
    assert cluster.brokers[1].metadata[T0].replicas == [3, 4]
    assert await controller.list_partition_reassignments() == {}
    assert cluster.term.context.replicas(T0) == (3, 4)


async def test_a_leader_that_stays_goes_on_leading(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [2, 4]})
    await cluster.settle()
    await catch_up(cluster, 2, 3, 4)
    state = await cluster.state("t")
    assert (state.leader, set(state.isr)) == (2, {2, 4})
    assert cluster.brokers[2].roles[T0].replicas == [2, 4]


async def test_an_isr_notification_completes_a_move_as_well(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2]})
    await cluster.active.controller.alter_partition_reassignments({T0: [4]})
    await cluster.settle()
    await catch_up(cluster, 2, 4, notify=True)
    assert await assignment(cluster) == ReplicaAssignment((4,))
    assert await cluster.admin.children(IsrChangeZnode.PARENT) == []


async def test_a_move_within_the_same_replicas_is_done_at_once(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [3, 2]})
    await cluster.settle()
    assert await assignment(cluster) == ReplicaAssignment((3, 2))
    assert (await cluster.state("t")).leader == 2, "the order alone moves no leader"


async def test_the_replication_factor_may_shrink(cluster: Cluster) -> None:
    await cluster.create("t", {0: [1, 2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [3]})
    await cluster.settle()
    assert await assignment(cluster) == ReplicaAssignment((3,))
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (3, (3,))
    assert cluster.brokers[1].deleted == cluster.brokers[2].deleted == {T0}


async def test_a_cancelled_move_leaves_everything_as_it_was(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    controller = cluster.active.controller
    await controller.alter_partition_reassignments({T0: [3, 4]})
    await cluster.settle()
    assert await controller.alter_partition_reassignments({T0: None}) == {T0: None}
    await cluster.settle()
    assert set((await assignment(cluster)).replicas) == {2, 3}
    assert not (await assignment(cluster)).is_being_reassigned
    assert cluster.brokers[4].deleted == {T0}
    assert T0 not in cluster.brokers[4].roles
    assert (await cluster.state("t")).leader == 2
    assert await controller.list_partition_reassignments() == {}


async def test_another_target_starts_from_the_origin(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.up(5)
    await cluster.create("t", {0: [2, 3]})
    controller = cluster.active.controller
    await controller.alter_partition_reassignments({T0: [3, 4]})
    await controller.alter_partition_reassignments({T0: [3, 5]})
    await cluster.settle()
    assert await assignment(cluster) == ReplicaAssignment((3, 5, 2), (5,), (2,))
    assert cluster.brokers[4].deleted == {T0}
    await catch_up(cluster, 2, 3, 5)
    assert await assignment(cluster) == ReplicaAssignment((3, 5))


async def test_what_cannot_be_done_is_refused(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    controller = cluster.active.controller

    async def refusal(target: list[int] | None, partition: TopicPartition = T0) -> object:
        return type((await controller.alter_partition_reassignments({partition: target}))[partition])

    assert await refusal([]) is InvalidReplicaAssignment
    assert await refusal([2, 2]) is InvalidReplicaAssignment
    assert await refusal([-1]) is InvalidReplicaAssignment
    assert await refusal([2, 9]) is InvalidReplicaAssignment
    assert await refusal(None) is NoReassignmentInProgress
    assert await refusal([2], TopicPartition("t", 7)) is UnknownTopicOrPartition
    refused = await controller.alter_partition_reassignments({T0: [2]}, allow_replication_factor_change=False)
    assert type(refused[T0]) is InvalidReplicationFactor
    assert await assignment(cluster) == ReplicaAssignment((2, 3))


async def test_the_znode_asks_for_moves_and_goes_when_they_are_done(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    nothing = TopicPartition("nothing", 0)
    request = ReassignPartitionsZnode.encode({T0: [3, 4], nothing: [1]})
    await cluster.admin.create(ReassignPartitionsZnode.PATH, request)
    await cluster.settle()
    data, _ = await cluster.admin.get(ReassignPartitionsZnode.PATH)
    assert ReassignPartitionsZnode.decode(data) == {T0: (3, 4)}, "what cannot be done is taken out"
    await catch_up(cluster, 2, 3, 4)
    assert not await cluster.exists(ReassignPartitionsZnode.PATH)
    assert await assignment(cluster) == ReplicaAssignment((3, 4))
    await cluster.admin.create(ReassignPartitionsZnode.PATH, ReassignPartitionsZnode.encode({T0: [3]}))
    await cluster.settle()
    assert await assignment(cluster) == ReplicaAssignment((3,)), "it is watched again"


async def test_a_new_controller_goes_on_with_a_move(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [3, 4]})
    await cluster.settle()
    await cluster.kill(1)
    assert cluster.term.context.partitions_being_reassigned == {T0}
    await catch_up(cluster, 2, 3, 4)
    assert await assignment(cluster) == ReplicaAssignment((3, 4))


async def test_a_move_waits_for_a_target_that_died_and_goes_on_when_it_is_back(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [3, 4]})
    await cluster.kill(4)
    await cluster.up(4)
    await cluster.settle()
    assert cluster.brokers[4].roles[T0].leader == 2
    await catch_up(cluster, 2, 3, 4)
    assert await assignment(cluster) == ReplicaAssignment((3, 4))


async def test_a_topic_that_moves_is_deleted_afterwards(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [3, 4]})
    await cluster.settle()
    await cluster.delete("t")
    assert await cluster.exists(DeleteTopicsZnode.path("t"))
    assert (await cluster.state("t")).leader == 2
    await catch_up(cluster, 2, 3, 4)
    assert not await cluster.exists(TopicZnode.path("t"))
    assert cluster.term.context.partitions_being_reassigned == set()


async def test_partitions_added_meanwhile_do_not_get_lost(cluster: Cluster) -> None:
    """The controller changes the topic's node as it stands, not as it remembers it."""
    await cluster.create("t", {0: [2, 3]})
    await add_partitions(cluster.admin, "t", {1: [3, 2]})
    await cluster.active.controller.alter_partition_reassignments({T0: [3]})
    await cluster.settle()
    assert (await assignment(cluster, partition=1)).replicas == (3, 2)
    assert (await cluster.state("t", 1)).leader == 3


async def test_a_topic_that_moves_is_not_deleted_because_a_broker_comes(cluster: Cluster) -> None:
    """The deletion waits for two things, and the end of one is not the end of the other."""
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [3, 4]})
    await cluster.kill(3)
    await cluster.delete("t")
    await cluster.up(3)
    await cluster.settle()
    assert await cluster.exists(TopicZnode.path("t"))
    assert cluster.brokers[2].deleted == set()


async def test_a_move_that_a_deletion_waits_for_may_be_cancelled(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    controller = cluster.active.controller
    await controller.alter_partition_reassignments({T0: [3, 4]})
    await cluster.delete("t")
    refused = await controller.alter_partition_reassignments({T0: [2]})
    assert isinstance(refused[T0], UnknownTopicOrPartition)
    assert await controller.alter_partition_reassignments({T0: None}) == {T0: None}
    await cluster.settle()
    assert not await cluster.exists(TopicZnode.path("t"))


async def test_a_move_is_not_over_while_a_replica_that_stays_is_out_of_sync(cluster: Cluster) -> None:
    """The new replica has caught up, but the other one of the target has fallen behind."""
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [3, 4]})
    await cluster.settle()
    await catch_up(cluster, 2, 4)
    assert (await assignment(cluster)).is_being_reassigned
    assert cluster.brokers[2].deleted == set()
    await catch_up(cluster, 2, 4, 3)
    assert await assignment(cluster) == ReplicaAssignment((3, 4))


async def test_a_partition_has_a_leader_at_every_moment_of_its_move(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leadership moves before the old leader is stopped, so a new controller in between finds one."""
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    written: list[PartitionState] = []
    session = cluster.members[1].session
    multi = session.multi

    async def noted(operations: Sequence[Operation]) -> list[Result]:
        written.extend(
            PartitionStateZnode.decode(each.data, 0)
            for each in operations
            if isinstance(each, SetData) and each.path == PartitionStateZnode.path("t", 0)
        )
        return await multi(operations)

    monkeypatch.setattr(session, "multi", noted)
    await cluster.active.controller.alter_partition_reassignments({T0: [3, 4]})
    await cluster.settle()
    await catch_up(cluster, 2, 3, 4)
    assert await assignment(cluster) == ReplicaAssignment((3, 4))
    assert written
    assert {state.leader for state in written} == {2, 3}


# Costs that a move must not have


async def led_by_a_newcomer(cluster: Cluster, *isr: int) -> None:
    """t-0 is on its way from 2 and 3 to 4, which is in sync, and leads since 2 and then 3 were gone."""
    await four(cluster)
    await cluster.up(5)
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [4, 5]})
    await cluster.settle()
    await catch_up(cluster, 2, 3, 4)
    await cluster.kill(2)
    await cluster.kill(3)
    assert (await cluster.state("t")).leader == 4
    for broker_id in (2, 3):
        await cluster.up(broker_id)
    await cluster.settle()
    await catch_up(cluster, *isr)


async def test_the_last_replica_in_sync_is_not_given_up_for_a_cancelled_move(cluster: Cluster) -> None:
    """Records written since the old replicas failed are on the new one alone."""
    await led_by_a_newcomer(cluster, 4)
    controller = cluster.active.controller
    refused = await controller.alter_partition_reassignments({T0: None})
    assert isinstance(refused[T0], InvalidReplicaAssignment)
    await cluster.settle()
    assert cluster.brokers[4].deleted == set()
    assert (await cluster.state("t")).leader == 4
    assert (await assignment(cluster)).is_being_reassigned
    await catch_up(cluster, 4, 2)
    assert await controller.alter_partition_reassignments({T0: None}) == {T0: None}
    await cluster.settle()
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (2, (2,))
    assert cluster.brokers[4].deleted == {T0}


async def test_the_last_replica_in_sync_is_not_given_up_for_another_target(cluster: Cluster) -> None:
    await led_by_a_newcomer(cluster, 4)
    controller = cluster.active.controller
    refused = await controller.alter_partition_reassignments({T0: [2, 5]})
    assert isinstance(refused[T0], InvalidReplicaAssignment)
    assert cluster.brokers[4].deleted == set()
    assert await controller.alter_partition_reassignments({T0: [4, 2]}) == {T0: None}


async def test_a_leader_that_another_target_gives_up_has_an_heir(cluster: Cluster) -> None:
    """The move goes on under a leader that stays, and no moment is without one."""
    await led_by_a_newcomer(cluster, 4, 3)
    controller = cluster.active.controller
    assert await controller.alter_partition_reassignments({T0: [3, 5]}) == {T0: None}
    await cluster.settle()
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (3, (3,))
    assert cluster.brokers[4].deleted == {T0}
    assert cluster.brokers[5].roles[T0].leader == 3
    assert cluster.brokers[1].metadata[T0].leader == 3
    await catch_up(cluster, 3, 5)
    assert await assignment(cluster) == ReplicaAssignment((3, 5))


async def test_the_leader_goes_before_its_replica_is_taken_out_of_the_assignment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that takes over in between finds a leader that is one of the replicas."""
    await led_by_a_newcomer(cluster, 4, 3)
    session = cluster.active.session
    multi = session.multi

    async def checked(operations: Sequence[Operation]) -> list[Result]:
        results = await multi(operations)
        state, replicas = await cluster.state("t"), (await assignment(cluster)).replicas
        assert state.leader in replicas, (state, replicas)
        return results

    monkeypatch.setattr(session, "multi", checked)
    assert await cluster.active.controller.alter_partition_reassignments({T0: [3, 5]}) == {T0: None}


async def test_a_move_to_brokers_that_are_gone_is_not_over(cluster: Cluster) -> None:
    """A leader that does not know of a failure yet may write the failed replica into the ISR once more."""
    await four(cluster)
    await cluster.create("t", {0: [2]})
    await cluster.active.controller.alter_partition_reassignments({T0: [4]})
    await cluster.settle()
    await cluster.kill(4)
    await catch_up(cluster, 2, 4, notify=True)
    assert (await cluster.state("t")).leader == 2
    assert cluster.brokers[2].deleted == set()
    await cluster.up(4)
    await cluster.settle()
    assert (await cluster.state("t")).leader == 4
    assert cluster.brokers[2].deleted == {T0}


async def test_partitions_that_the_controller_has_not_heard_of_are_kept(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    cluster.members[1].session.watches.clear()
    await add_partitions(cluster.admin, "t", {1: [3, 2]})
    await cluster.active.controller.alter_partition_reassignments({T0: [3]})
    await cluster.settle()
    assert (await assignment(cluster, partition=1)).replicas == (3, 2)


async def test_the_balance_of_leaders_leaves_a_partition_alone_that_moves(cluster: Cluster) -> None:
    await four(cluster)
    await cluster.create("t", {0: [2, 3]})
    await cluster.active.controller.alter_partition_reassignments({T0: [4, 3]})
    await cluster.settle()
    await cluster.up(5)
    await cluster.active.controller.alter_partition_reassignments({T0: [4, 5]})
    await cluster.settle()
    await catch_up(cluster, 2, 3, 4, notify=True)
    await cluster.advance(ms=5_000)
    assert (await cluster.state("t")).leader == 2
