"""Deleting topics: what happens in which order, and what makes it wait."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas.cluster.coordination.contract import ConnectionLoss, Operation, Result
from barnabas.cluster.stores.topics import (
    add_partitions,
    change_config,
    create_topic,
    mark_for_deletion,
    read_config,
    read_topic,
)
from barnabas.cluster.znodes.layout import ConfigZnode, TopicZnode
from barnabas.cluster.znodes.notifications import DeleteTopicsZnode
from barnabas.core.errors import KafkaStorageError, StaleBrokerEpoch
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.embedded_sessions import expire_session
from tests.support.settings import broker_config
from tests.unit.controller.scripted_cluster import Cluster

T0 = TopicPartition("t", 0)


async def assert_gone(cluster: Cluster, topic: str) -> None:
    for path in (TopicZnode.path(topic), ConfigZnode.path("topics", topic), DeleteTopicsZnode.path(topic)):
        assert not await cluster.exists(path), path
    context = cluster.term.context
    assert topic not in context.assignments
    assert topic not in context.topic_ids
    assert topic not in context.topics_to_be_deleted
    assert not [partition for partition in context.leadership if partition.topic == topic]
    assert not [replica for replica in context.replica_states if replica.topic == topic]
    assert not [partition for partition in context.partition_states if partition.topic == topic]


async def test_a_deleted_topic_leaves_nothing_behind(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3], 1: [3, 1]}, {"retention.ms": "1000"})
    await cluster.create("other", {0: [1]})
    await cluster.delete("t")
    await assert_gone(cluster, "t")
    assert cluster.brokers[2].deleted == {T0}
    assert cluster.brokers[3].deleted == {T0, TopicPartition("t", 1)}
    assert T0 not in cluster.brokers[1].metadata
    assert (await cluster.state("other")).leader == 1


async def test_metadata_go_before_the_replicas(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2]})
    cluster.forget_requests()
    await cluster.delete("t")
    kinds = [type(request) for request in cluster.brokers[2].requests]
    assert kinds.index(UpdateMetadataRequest) < kinds.index(StopReplicaRequest)
    (request,) = cluster.brokers[2].of_kind(StopReplicaRequest)
    (state,) = request.topic_states[0].partition_states
    assert state.delete_partition
    assert state.leader_epoch == -2, "whatever epoch the replica knows"


async def test_a_topic_may_be_created_again(cluster: Cluster) -> None:
    first = await cluster.create("t", {0: [2, 3]})
    await cluster.delete("t")
    second = await cluster.create("t", {0: [3], 1: [2]})
    assert first != second
    assert cluster.brokers[3].roles[T0].leader == 3
    assert cluster.term.context.topic_ids["t"] == second


async def test_a_deletion_waits_for_an_offline_replica_and_resumes(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    await cluster.delete("t")
    assert "t" in cluster.term.context.topics_ineligible_for_deletion
    assert await cluster.exists(DeleteTopicsZnode.path("t"))
    assert cluster.brokers[2].deleted == {T0}, "those that live are deleted already"
    assert T0 not in cluster.brokers[1].metadata, "and nobody can find it"
    await cluster.up(3)
    await cluster.settle()
    await assert_gone(cluster, "t")
    assert cluster.brokers[3].deleted == {T0}


async def test_a_new_controller_goes_on_with_a_deletion(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    await cluster.delete("t")
    await cluster.kill(1)
    assert cluster.active.id == 2
    assert "t" in cluster.term.context.topics_to_be_deleted
    await cluster.up(3)
    await cluster.settle()
    await assert_gone(cluster, "t")


async def test_a_broker_that_dies_during_the_deletion_makes_it_wait(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    cluster.brokers[3].is_reachable = False
    await cluster.delete("t")
    assert cluster.brokers[2].deleted == {T0}
    await cluster.kill(3)
    assert "t" in cluster.term.context.topics_ineligible_for_deletion
    cluster.brokers[3].is_reachable = True
    await cluster.up(3)
    await cluster.settle()
    await assert_gone(cluster, "t")


async def test_a_bounced_broker_gets_the_deletion_again(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    cluster.brokers[3].is_reachable = False
    await cluster.delete("t")
    cluster.brokers[3].is_reachable = True
    await cluster.bounce(3)
    await assert_gone(cluster, "t")


async def test_what_a_broker_answered_before_it_bounced_says_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in the queue behind the restart, after which the broker receives the request again."""
    await cluster.create("t", {0: [2, 3]})
    topic_id = await cluster.create("other", {0: [3, 2]})
    cluster.brokers[3].is_reachable = False
    await cluster.delete("t")
    term = cluster.term
    process = term.brokers.process

    async def process_while_answers_come(registered: Iterable[int]) -> None:
        term.stop_replica_answered(3, StopReplicaResponse(error_code=StaleBrokerEpoch.code), frozenset({T0}))
        failed = LeaderAndIsrPartitionError(partition_index=0, error_code=KafkaStorageError.code)
        topics = [LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[failed])]
        term.leader_and_isr_answered(3, LeaderAndIsrResponse(topics=topics))
        await process(registered)

    monkeypatch.setattr(term.brokers, "process", process_while_answers_come)
    cluster.brokers[3].is_reachable = True
    await cluster.bounce(3)
    await assert_gone(cluster, "t")
    assert not term.context.replicas_on_offline_dirs.get(3), "its disk was another one then"


async def test_a_failed_deletion_is_tried_again_when_the_broker_is_back(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    cluster.brokers[3].deletion_error = KafkaStorageError.code
    await cluster.delete("t")
    assert "t" in cluster.term.context.topics_ineligible_for_deletion
    cluster.brokers[3].deletion_error = 0
    await cluster.kill(3)
    await cluster.up(3)
    await cluster.settle()
    await assert_gone(cluster, "t")


async def test_the_mark_of_a_topic_that_does_not_exist_is_removed(cluster: Cluster) -> None:
    await cluster.admin.create(DeleteTopicsZnode.path("nothing"))
    await cluster.settle()
    assert not await cluster.exists(DeleteTopicsZnode.path("nothing"))


async def test_nothing_is_deleted_where_deleting_is_disabled(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster(tmp_path / "s", stack, settings=broker_config(delete_topic_enable=False))
        await cluster.start(1, 2)
        await cluster.create("t", {0: [2]})
        await cluster.delete("t")
        assert not await cluster.exists(DeleteTopicsZnode.path("t"))
        assert (await cluster.state("t")).leader == 2


async def test_a_topic_that_is_being_deleted_gets_no_more_partitions(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    await cluster.delete("t")
    await add_partitions(cluster.admin, "t", {1: [1]})
    await cluster.settle()
    info = TopicZnode.decode("t", (await cluster.admin.get(TopicZnode.path("t")))[0])
    assert sorted(info.assignment) == [0]


async def test_a_topic_with_many_partitions_is_deleted_in_bounded_transactions(cluster: Cluster) -> None:
    await cluster.create("t", {number: [1 + number % 3] for number in range(3_000)})
    assert len(cluster.term.context.leadership) == 3_000
    await cluster.delete("t")
    await assert_gone(cluster, "t")


async def test_a_deletion_that_no_controller_saw_is_done_by_the_next(cluster: Cluster) -> None:
    await cluster.create("t", {0: [2, 3]})
    await expire_session(cluster.members[1].session)
    for member in cluster.members.values():
        member.session.watches.clear()
    await mark_for_deletion(cluster.admin, "t")
    cluster.members[1].controller.session_expired()
    cluster.members[2].controller.session_expired()
    cluster.members[2].controller.session_renewed()
    await cluster.settle()
    assert cluster.active.id == 2
    await assert_gone(cluster, "t")


async def test_a_topic_made_again_is_not_deleted_by_a_deletion_whose_answer_was_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is free at once; a repeated deletion finds another topic there."""
    await cluster.create("t", {0: [2, 3]}, {"retention.ms": "1000"})
    session = cluster.members[1].session
    multi = session.multi
    lost: list[int] = []
    second = Uuid.generate(cluster.randomness)

    async def lose_the_answer(operations: Sequence[Operation]) -> list[Result]:
        results = await multi(operations)
        if not lost and any(operation.path == DeleteTopicsZnode.path("t") for operation in operations):
            lost.append(1)
            await create_topic(cluster.admin, "t", second, {0: [3]}, {"retention.ms": "2000"})
            raise ConnectionLoss
        return results

    monkeypatch.setattr(session, "multi", lose_the_answer)
    await cluster.delete("t")
    await cluster.advance(ms=100)
    assert lost
    info, _ = await read_topic(cluster.admin, "t")
    assert info.topic_id == second
    assert await read_config(cluster.admin, ConfigZnode.TOPICS, "t") == {"retention.ms": "2000"}
    assert cluster.term.context.topic_ids["t"] == second
    assert cluster.brokers[3].roles[T0].leader == 3


async def test_the_settings_of_a_topic_go_with_its_name(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any division of its nodes into transactions: a topic created again keeps its settings."""
    monkeypatch.setattr("barnabas.controller.state.store.OPERATIONS_PER_TRANSACTION_MAX", 1)
    await cluster.create("t", {0: [2], 1: [3]}, {"retention.ms": "1000"})
    session = cluster.members[1].session
    multi = session.multi
    remade: list[int] = []

    async def remake(operations: Sequence[Operation]) -> list[Result]:
        results = await multi(operations)
        if not remade and await cluster.admin.exists(TopicZnode.path("t")) is None:
            remade.append(1)
            await cluster.admin.create(TopicZnode.path("t"), TopicZnode.encode(None, {}))
            await change_config(cluster.admin, ConfigZnode.TOPICS, "t", lambda _: {"retention.ms": "2000"})
        return results

    monkeypatch.setattr(session, "multi", remake)
    await cluster.delete("t")
    assert remade
    assert await read_config(cluster.admin, ConfigZnode.TOPICS, "t") == {"retention.ms": "2000"}


async def test_a_deletion_under_way_is_not_begun_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("t", {0: [2, 3], 1: [2, 3]})
    await cluster.create("u", {0: [2]})
    cluster.brokers[3].is_reachable = False
    await cluster.delete("t")
    cluster.forget_requests()
    await cluster.delete("u")
    assert not await cluster.exists(TopicZnode.path("u"))
    told = [
        topic.topic_name
        for request in cluster.brokers[2].of_kind(UpdateMetadataRequest)
        for topic in request.topic_states
    ]
    assert set(told) == {"u"}
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_new_controller_begins_no_deletion_that_cannot_end(cluster: Cluster) -> None:
    """While a replica is out of reach the others stay as they are; then all go."""
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    await cluster.delete("t")
    cluster.forget_requests()
    await cluster.kill(1)
    assert "t" in cluster.term.context.topics_ineligible_for_deletion

    def deletions(broker_id: int) -> list[TopicPartition]:
        return [
            TopicPartition(topic.topic_name, state.partition_index)
            for request in cluster.brokers[broker_id].of_kind(StopReplicaRequest)
            for topic in request.topic_states
            for state in topic.partition_states
            if state.delete_partition
        ]

    assert deletions(2) == []
    await cluster.up(3)
    await cluster.settle()
    assert deletions(2) == deletions(3) == [T0]
    await assert_gone(cluster, "t")


async def test_a_replica_that_was_deleted_is_not_made_again_by_the_deletion_of_another(
    cluster: Cluster,
) -> None:
    """When the last broker is back, the others receive nothing more about the partition."""
    await cluster.create("t", {0: [2, 3]})
    await cluster.kill(3)
    await cluster.delete("t")
    assert T0 not in cluster.brokers[2].roles
    await cluster.up(3)
    await cluster.settle()
    assert T0 not in cluster.brokers[2].roles
    assert T0 not in cluster.brokers[3].roles
