"""Who is the controller, and what a new one does first."""

from __future__ import annotations

from barnabas.cluster.znodes import ControllerEpochZnode, ControllerZnode
from barnabas.core.ids import TopicPartition
from tests.unit.controller.cluster.support import Cluster

T0 = TopicPartition("t", 0)


async def test_one_of_several_brokers_is_the_controller(cluster: Cluster) -> None:
    assert cluster.active.id == 1
    assert cluster.active.controller.epoch == 1
    assert [member.controller.active_controller_id for member in cluster.members.values()] == [1, 1, 1]
    data, stat = await cluster.admin.get(ControllerZnode.PATH)
    assert ControllerZnode.decode(data) == 1
    assert stat.ephemeral_owner == cluster.members[1].session.session_id


async def test_a_new_topic_gets_leaders(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3], 1: [3, 1]})
    state = await cluster.state("t")
    assert (state.leader, state.leader_epoch, state.isr, state.controller_epoch) == (2, 0, (2, 3), 1)
    assert cluster.brokers[2].roles[T0].leader == 2
    assert cluster.brokers[2].roles[T0].is_new
    assert cluster.brokers[3].roles[T0].leader == 2
    assert T0 not in cluster.brokers[1].roles
    for broker in cluster.brokers.values():
        assert broker.metadata[T0].leader == 2
        assert broker.known_brokers == {1, 2, 3}


async def test_a_dead_leader_is_replaced_by_a_replica_in_sync(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(2)
    state = await cluster.state("t")
    assert (state.leader, state.leader_epoch, state.isr) == (3, 1, (3,))
    assert cluster.brokers[3].roles[T0].leader == 3
    assert cluster.brokers[1].metadata[T0].leader == 3
    assert cluster.brokers[1].known_brokers == {1, 3}


async def test_another_broker_takes_over_from_a_dead_controller(cluster: Cluster) -> None:
    await cluster.create("t", {0: [1, 2, 3]})
    await cluster.kill(1)
    assert cluster.active.id in (2, 3)
    assert cluster.active.controller.epoch == 2
    assert ControllerEpochZnode.decode((await cluster.admin.get(ControllerEpochZnode.PATH))[0]) == 2
    state = await cluster.state("t")
    assert state.leader == 2
    assert state.isr == (2, 3)
    assert state.controller_epoch == 2
    assert cluster.brokers[3].roles[T0].leader == 2
