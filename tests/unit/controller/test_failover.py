"""Controller failover: the election, and the first steps of a new controller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from barnabas.cluster.coordination.contract import ConnectionLoss, Create, Delete, Operation, Result
from barnabas.cluster.znodes.brokers import BrokerIdZnode
from barnabas.cluster.znodes.layout import (
    ControllerEpochZnode,
    ControllerZnode,
    PartitionState,
    ReplicaAssignment,
    TopicZnode,
)
from barnabas.cluster.znodes.notifications import LogDirEventZnode, ReassignPartitionsZnode
from barnabas.controller.controller import LAST_WORDS_MS
from barnabas.controller.machines.partition_machine import Election
from barnabas.controller.state.partition_states import PartitionStatus
from barnabas.controller.state.replica_states import PartitionReplica, ReplicaStatus
from barnabas.controller.state.store import ControllerStore, Written
from barnabas.controller.term import Term
from barnabas.core.errors import NotController, StaleControllerEpoch
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from barnabas.protocol.schema.message import Message
from tests.support.embedded_sessions import expire_session, renew_session, resume_session, suspend_session
from tests.unit.controller.scripted_cluster import Cluster, ScriptedChannel

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


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


async def test_a_broker_that_came_back_without_a_controller_counts_as_gone(
    cluster: Cluster,
) -> None:
    """It may have lost what was not synced: in the epoch in which it led, the logs would part."""
    await cluster.create("t", {0: [2, 3], 1: [3, 2]})
    await cluster.create("alone", {0: [2]})
    session = cluster.members[2].session
    path = BrokerIdZnode.path(2)
    data, _ = await session.get(path)
    await session.multi([Delete(ControllerZnode.PATH), Delete(path), Create(path, data, ephemeral=True)])
    _, stat = await session.get(path)
    cluster.brokers[2].epoch = stat.czxid
    await cluster.settle()
    assert cluster.active.controller.epoch == 2
    for partition in (0, 1):
        state = await cluster.state("t", partition)
        assert (state.leader, state.leader_epoch, state.isr) == (3, 1, (3,))
        assert cluster.brokers[2].roles[TopicPartition("t", partition)].leader == 3
    state = await cluster.state("alone")
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2,))


async def test_who_stayed_is_left_as_it_is_by_a_new_controller(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    before = await cluster.state("t")
    await cluster.admin.delete(ControllerZnode.PATH)
    await cluster.settle()
    assert cluster.active.controller.epoch == 2
    assert await cluster.state("t") == before


async def test_deleting_the_node_elects_again_and_the_old_controller_resigns_first(cluster: Cluster) -> None:
    former = cluster.term
    await cluster.admin.delete(ControllerZnode.PATH)
    await cluster.settle()
    assert cluster.active.controller.epoch == 2
    assert sum(member.controller.is_active for member in cluster.members.values()) == 1
    cluster.forget_requests()
    former.batch.add_update_metadata((1, 2, 3))
    former.batch.flush()
    await cluster.settle()
    assert not any(broker.requests for broker in cluster.brokers.values()), "it sends nothing any more"


async def test_rewriting_the_node_elects_again(cluster: Cluster) -> None:
    await cluster.admin.set(ControllerZnode.PATH, ControllerZnode.encode(9, 0))
    await cluster.settle()
    assert cluster.active.controller.epoch == 2
    data, _ = await cluster.admin.get(ControllerZnode.PATH)
    assert ControllerZnode.decode(data) == cluster.active.id


async def test_rewriting_the_node_with_the_same_broker_changes_nothing(cluster: Cluster) -> None:
    await cluster.admin.set(ControllerZnode.PATH, ControllerZnode.encode(1, 0))
    await cluster.settle()
    assert (cluster.active.id, cluster.active.controller.epoch) == (1, 1)


async def test_a_failed_failover_resigns_and_deletes_the_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []
    take_over = Term.take_over

    async def fail_twice(term: Term) -> None:
        attempts.append(term.epoch)
        if len(attempts) <= 2:
            raise RuntimeError("cannot")
        await take_over(term)

    monkeypatch.setattr(Term, "take_over", fail_twice)
    await cluster.kill(1)
    assert attempts == [2, 3, 4]
    assert cluster.active.controller.epoch == 4


async def test_a_controller_that_lost_its_session_is_none_at_once(cluster: Cluster) -> None:
    old = cluster.members[1]
    await expire_session(old.session)
    old.controller.session_expired()
    assert not old.controller.is_active
    await cluster.settle()
    assert cluster.active.id in (2, 3)
    with pytest.raises(NotController):
        await old.controller.elect_leaders(Election.PREFERRED, None)


async def test_a_broker_with_a_new_session_competes_again(cluster: Cluster) -> None:
    old = cluster.members[1]
    await expire_session(old.session)
    old.controller.session_expired()
    await cluster.settle()
    renew_session(old.session)
    old.controller.session_renewed()
    await cluster.settle()
    assert old.controller.active_controller_id == cluster.active.id
    second = cluster.active.id
    await cluster.kill(second)
    assert cluster.active.controller.epoch == 3


async def test_a_request_that_waits_when_the_session_is_lost_is_refused(cluster: Cluster) -> None:
    controller = cluster.active.controller
    asked = asyncio.ensure_future(controller.list_partition_reassignments())
    await asyncio.sleep(0)
    cluster.active.session.lose()
    controller.session_expired()
    with pytest.raises(NotController):
        await asked


async def test_a_lost_answer_to_the_election_is_recognised(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = cluster.members[2].session
    multi = candidate.multi
    lost: list[int] = []

    async def lose_the_answer(operations: Sequence[Operation]) -> list[Result]:
        results = await multi(operations)
        if not lost and any(operation.path == ControllerZnode.PATH for operation in operations):
            lost.append(1)
            raise ConnectionLoss
        return results

    monkeypatch.setattr(candidate, "multi", lose_the_answer)
    suspend_session(cluster.members[3].session)
    await cluster.kill(1)
    assert not cluster.members[2].controller.is_active
    await cluster.advance(ms=100)
    assert lost
    assert cluster.members[2].controller.is_active
    assert cluster.members[2].controller.epoch == 2
    resume_session(cluster.members[3].session)


async def test_a_second_controller_in_the_middle_of_an_event_fences_the_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has decided, and goes on to write, when another one is elected: its write fails."""
    await cluster.create("t", {0: [2, 3]})
    first = cluster.members[1]
    before = await cluster.state("t")
    update_states = ControllerStore.update_states
    interrupted: list[int] = []

    async def interrupt(store: ControllerStore, states: Mapping[TopicPartition, PartitionState]) -> Written:
        if not interrupted:
            interrupted.append(1)
            _, stat = await cluster.admin.get(ControllerEpochZnode.PATH)
            # Another controller has come and gone without the first hearing of it.
            await cluster.admin.set(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(7), stat.version)
        return await update_states(store, states)

    monkeypatch.setattr(ControllerStore, "update_states", interrupt)
    with pytest.raises(NotController):
        await first.controller.controlled_shutdown(2, -1)
    await cluster.settle()
    assert cluster.active.controller.epoch == 8
    state = await cluster.state("t")
    assert state.leader == before.leader
    assert state.isr == before.isr


async def test_brokers_refuse_a_previous_controller(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    old = cluster.term
    for broker in cluster.brokers.values():
        broker.controller_epoch = 5
    old.batch.add_update_metadata((1, 2, 3))
    old.batch.flush()
    await cluster.settle()
    # It checked the active controller, and it still is: no other broker has taken the node.
    assert cluster.active.id == 1
    assert cluster.brokers[2].of_kind(UpdateMetadataRequest)[-1].controller_epoch == 1


async def test_every_request_carries_both_epochs(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.delete("t")
    kinds = {type(request) for request in cluster.brokers[2].requests}
    assert kinds == {LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest}
    for broker in cluster.brokers.values():
        for request in broker.requests:
            assert request.controller_epoch == 1  # type: ignore[attr-defined]
            assert request.broker_epoch == broker.epoch  # type: ignore[attr-defined]
            assert request.controller_id == 1  # type: ignore[attr-defined]


async def test_brokers_hear_who_lives_before_they_hear_whom_to_follow(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    cluster.forget_requests()
    await cluster.kill(1)
    for broker_id in (2, 3):
        kinds = [type(request) for request in cluster.brokers[broker_id].requests]
        assert kinds[0] is UpdateMetadataRequest
        assert LeaderAndIsrRequest in kinds


async def test_a_new_controller_knows_what_the_old_one_knew(cluster: Cluster) -> None:
    topic_id = await cluster.create("t", {0: [2, 3], 1: [3, 2]})
    await cluster.kill(1)
    context = cluster.term.context
    assert context.topic_ids == {"t": topic_id}
    assert context.topic_names == {topic_id: "t"}
    assert context.live_broker_ids == {2, 3}
    assert context.replicas(T0) == (2, 3)
    assert context.leadership[T0] == await cluster.state("t")
    assert set(context.partition_states.values()) == {PartitionStatus.ONLINE}
    assert set(context.replica_states.values()) == {ReplicaStatus.ONLINE}


async def test_the_context_has_all_that_apache_kafkas_has(cluster: Cluster) -> None:
    """Looked at in the middle of a move, a deletion that waits, a failed disk and a broker's way out."""
    for broker_id in (4, 5, 6):
        await cluster.up(broker_id)
    await cluster.settle()
    await cluster.create("t", {0: [2, 3], 1: [3, 2]})
    await cluster.create("going", {0: [3, 4]})
    await cluster.create("dark", {0: [4]})
    await cluster.kill(4)
    await cluster.delete("going")
    cluster.brokers[2].offline = {T1}
    note = LogDirEventZnode.encode(2)
    await cluster.members[2].session.create(LogDirEventZnode.CREATE_PATH, note, sequential=True)
    await cluster.settle()
    await cluster.active.controller.alter_partition_reassignments({T0: [2, 5]})
    await cluster.active.controller.controlled_shutdown(6, -1)
    await cluster.settle()

    context = cluster.term.context
    assert context.live_broker_ids == {1, 2, 3, 5}
    assert context.shutting_down_broker_ids == {6}
    epochs = {broker_id: broker.epoch for broker_id, broker in context.brokers.items()}
    assert epochs == {each: cluster.brokers[each].epoch for each in (1, 2, 3, 5, 6)}
    assert context.assignments.keys() == {"t", "going", "dark"}
    assert context.assignment(T0) == ReplicaAssignment((2, 5, 3), (5,), (3,))
    assert context.leadership[T1] == await cluster.state("t", 1)
    assert context.partitions_being_reassigned == {T0}
    assert context.partition_states[T0] is PartitionStatus.ONLINE
    assert context.partition_states[TopicPartition("dark", 0)] is PartitionStatus.OFFLINE
    assert context.replica_states[PartitionReplica(T0, 5)] is ReplicaStatus.NEW
    assert context.replica_states[PartitionReplica(T1, 2)] is ReplicaStatus.OFFLINE
    assert context.replicas_on_offline_dirs[2] == {T1}
    assert context.topics_to_be_deleted == context.topics_with_deletion_started == {"going"}
    assert context.topics_ineligible_for_deletion == {"going"}
    assert "kafka_controller_offline_partitions_count 1" in render_prometheus(cluster.active.metrics)


async def test_a_topic_from_before_topic_ids_gets_one(cluster: Cluster) -> None:
    await cluster.admin.create(TopicZnode.path("old"), TopicZnode.encode(None, {0: ReplicaAssignment((2,))}))
    await cluster.settle()
    info = TopicZnode.decode("old", (await cluster.admin.get(TopicZnode.path("old")))[0])
    assert info.topic_id is not None
    assert cluster.term.context.topic_ids["old"] == info.topic_id
    assert (await cluster.state("old")).leader == 2


async def test_a_topic_that_lost_its_id_gets_that_one_back(cluster: Cluster) -> None:
    """Tools from before topic ids write the node without one. With another id brokers would take their logs
    for those of a deleted topic, and set them aside.
    """
    topic_id = await cluster.create("t", {0: [2, 3]})
    await cluster.admin.set(TopicZnode.path("t"), b'{"version":1,"partitions":{"0":[2,3],"1":[3,2]}}')
    await cluster.settle()
    await cluster.kill(cluster.active.id)
    await cluster.settle()
    info = TopicZnode.decode("t", (await cluster.admin.get(TopicZnode.path("t")))[0])
    assert (info.topic_id, sorted(info.assignment)) == (topic_id, [0, 1])
    assert cluster.term.context.topic_ids == {"t": topic_id}


async def test_a_spoilt_znode_does_not_stop_the_others(cluster: Cluster) -> None:
    await cluster.admin.create(TopicZnode.path("spoilt"), b"no json")
    await cluster.admin.create(ReassignPartitionsZnode.PATH, b"no json")
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(1)
    assert cluster.active.controller.epoch == 2
    assert (await cluster.state("t")).controller_epoch in (1, 2)
    assert cluster.brokers[3].roles[T0].leader == 2


async def test_the_figures_of_the_controller(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3], 1: [3, 2]})
    await cluster.kill(2)
    text = render_prometheus(cluster.active.metrics)
    assert "kafka_controller_active_controller_count 1" in text
    assert "kafka_controller_global_topic_count 1" in text
    assert "kafka_controller_global_partition_count 2" in text
    assert "kafka_controller_preferred_replica_imbalance_count 1" in text
    assert "kafka_controller_offline_partitions_count 0" in text
    assert "kafka_controller_active_broker_count 2" in text
    assert "kafka_controller_event_queue_size 0" in text
    assert "kafka_controller_leader_elections_total 1\n" in text
    assert "kafka_controller_topics_to_delete_count 0\n" in text
    await cluster.kill(3)
    assert "kafka_controller_offline_partitions_count 2" in render_prometheus(cluster.active.metrics)
    assert "kafka_controller_active_controller_count 0" in render_prometheus((await cluster.up(2)).metrics)


async def test_events_of_a_term_that_is_over_are_not_processed(cluster: Cluster) -> None:
    """They were queued before the controller found out that there is a later one."""
    term = cluster.term
    processed: list[str] = []

    async def stale() -> None:
        raise StaleControllerEpoch("another controller has been elected")

    async def late() -> None:
        processed.append("late")

    term._enqueue("finds out", stale)
    term._enqueue("comes after", late)
    await cluster.settle()
    assert cluster.active.controller.term is not term
    assert processed == []


async def test_who_waits_for_the_controller_is_answered_when_its_session_is_over(cluster: Cluster) -> None:
    """Even if the running event waits for something."""
    controller = cluster.active.controller
    never = asyncio.Event()

    async def hang() -> None:
        await never.wait()

    controller.events.put("hangs", hang)
    asked = asyncio.ensure_future(controller.list_partition_reassignments())
    for _ in range(5):
        await asyncio.sleep(0)
    controller.session_expired()
    async with asyncio.timeout(5):
        with pytest.raises(NotController):
            await asked
    never.set()


async def test_a_connection_that_failed_is_not_used_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels: list[ScriptedChannel] = []
    send = ScriptedChannel.send

    async def noted(channel: ScriptedChannel, request: Message, response_class: type[Message]) -> Message:
        channels.append(channel)
        return await send(channel, request, response_class)

    monkeypatch.setattr(ScriptedChannel, "send", noted)
    cluster.brokers[2].is_reachable = False
    await cluster.create("t", {0: [2]})
    cluster.brokers[2].is_reachable = True
    await cluster.advance(ms=100)
    assert cluster.brokers[2].roles[T0].leader == 2
    used = [each for each in channels if each._broker.id == 2]
    assert used[0].is_closed
    assert used[-1] is not used[0]


async def test_a_controller_that_stops_waits_for_its_last_words_but_not_long(cluster: Cluster) -> None:
    controller = cluster.active.controller
    cluster.brokers[2].is_reachable = False
    await cluster.create("t", {0: [2]})
    closing = asyncio.ensure_future(controller.close())
    await cluster.settle()
    assert controller.is_active
    await cluster.advance(LAST_WORDS_MS)
    assert closing.done()
    assert not controller.is_active
