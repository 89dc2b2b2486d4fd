"""Start of a single broker: reconciling the store with the disk."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from barnabas.administration.topic_rules import TopicSpec
from barnabas.cluster.coordination.contract import Operation
from barnabas.cluster.stores import topics as store
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode, ReplicaAssignment, TopicZnode
from barnabas.cluster.znodes.notifications import DeleteTopicsZnode
from barnabas.core.ids import NO_LEADER, TopicPartition, Uuid
from tests.unit.controller.support import BROKER_ID, Admin

TOPIC_ID = Uuid.generate(random.Random(1))


def leaders(admin: Admin, topic: str) -> list[int]:
    shown = admin.metadata.topic(topic)
    assert shown is not None
    return [partition.leader for partition in shown.partitions]


async def test_a_restart_leads_everything_again_in_a_new_epoch(admin: Admin) -> None:
    created = await admin.topics.create_topic(TopicSpec("t", 2, 1, configs={"retention.ms": "5"}))
    await admin.topics.create_topic(TopicSpec("u"))
    for epoch in (1, 2):
        await admin.restart()
        assert {led.leader_epoch for led in admin.replicas.led.values()} == {epoch}
        assert len(admin.replicas.led) == 3
        assert admin.led("t").log.topic_id == created.topic_id
        assert admin.led("t").log.config.retention_ms == 5
        shown = admin.metadata.topic("t")
        assert shown is not None
        assert [p.leader_epoch for p in shown.partitions] == [epoch, epoch]
    states = (await store.read_topics(admin.znodes))["t"].states
    assert states[0] == PartitionState(BROKER_ID, 2, (BROKER_ID,), admin.controller.epoch, state_version=2)


async def test_all_elections_of_a_start_are_one_write(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        await admin.topics.create_topic(TopicSpec(name, 5, 1))
    await admin.stop()
    await admin.open()
    sizes: list[int] = []
    multi = admin.znodes.multi

    async def counted(operations: Sequence[Operation]) -> object:
        sizes.append(len(operations))
        return await multi(operations)

    monkeypatch.setattr(admin.znodes, "multi", counted)
    await admin.load()
    becoming_the_controller = 2
    assert sizes == [becoming_the_controller, 1 + 15]


async def test_the_epoch_is_above_what_the_log_has_seen(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("t"))
    admin.disk.found[TopicPartition("t", 0)].leader_epochs.latest_epoch = 41
    await admin.restart()
    assert admin.led("t").leader_epoch == 42


async def test_directories_of_another_kafka_are_adopted(admin: Admin) -> None:
    admin.disk.add("foreign", 0, TOPIC_ID, latest_epoch=7)
    admin.disk.add("foreign", 2, TOPIC_ID)
    admin.disk.add("no-id", 0)
    admin.disk.add("__cluster_metadata", 1, TOPIC_ID)
    admin.disk.add("bad name", 0, TOPIC_ID)
    await admin.restart()
    assert set(admin.metadata.topic_names()) == {"foreign", "no-id"}
    assert leaders(admin, "foreign") == [BROKER_ID] * 3
    assert admin.led("foreign", 0).leader_epoch == 8
    assert admin.led("foreign", 1).leader_epoch == 0
    stored = await store.read_topics(admin.znodes)
    assert stored["foreign"].info.topic_id == TOPIC_ID
    assert stored["foreign"].info.assignment[2] == ReplicaAssignment((BROKER_ID,))
    assert stored["no-id"].info.topic_id is not None
    await admin.restart()
    assert admin.led("foreign", 0).leader_epoch == 9


async def test_ids_of_producers_in_adopted_logs_are_never_given_out(admin: Admin) -> None:
    admin.disk.add("foreign", 0, TOPIC_ID)
    admin.disk.producer_id_seen = 4_321
    await admin.restart()
    block = await store.allocate_producer_ids(admin.znodes, BROKER_ID)
    assert block.first > 4_321


async def test_partitions_that_only_the_disk_knows_are_added(admin: Admin) -> None:
    created = await admin.topics.create_topic(TopicSpec("t"))
    admin.disk.add("t", 2, created.topic_id, latest_epoch=3)
    await admin.restart()
    assert leaders(admin, "t") == [BROKER_ID] * 3
    assert admin.led("t", 2).leader_epoch == 4
    assert admin.led("t", 1).leader_epoch == 0


async def test_an_interrupted_deletion_is_finished(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("t", 2, 1))
    await admin.topics.create_topic(TopicSpec("stays"))
    await store.mark_for_deletion(admin.znodes, "t")
    await admin.restart()
    assert admin.metadata.topic_names() == ["stays"]
    assert admin.disk.deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert list(await store.read_topics(admin.znodes)) == ["stays"]
    assert await admin.znodes.children(DeleteTopicsZnode.PARENT) == []


async def test_a_marker_without_a_topic_is_cleared_with_what_is_on_disk(admin: Admin) -> None:
    await admin.stop()
    await admin.open()
    await admin.znodes.create(DeleteTopicsZnode.path("ghost"))
    admin.disk.add("ghost", 0, TOPIC_ID)
    await admin.load()
    assert admin.metadata.topic_names() == []
    assert admin.disk.deleted == [TopicPartition("ghost", 0)]
    assert await admin.znodes.children(DeleteTopicsZnode.PARENT) == []


async def test_a_log_of_a_previous_topic_of_that_name_is_set_aside(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("t", 2, 1))
    admin.disk.found[TopicPartition("t", 1)].topic_id = TOPIC_ID
    await admin.restart()
    assert admin.disk.strays == [TopicPartition("t", 1)]
    assert leaders(admin, "t") == [BROKER_ID, BROKER_ID]


async def test_logs_of_a_previous_topic_of_that_name_add_no_partitions(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("t"))
    admin.disk.add("t", 2, TOPIC_ID)
    await admin.restart()
    assert admin.disk.strays == [TopicPartition("t", 2)]
    assert leaders(admin, "t") == [BROKER_ID]


async def test_a_log_that_was_on_a_failed_disk_does_not_start_empty_elsewhere(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("t", 2, 1))
    del admin.disk.found[TopicPartition("t", 1)]
    admin.disk.directories[0].failure = OSError("gone")
    await admin.restart()
    assert leaders(admin, "t") == [BROKER_ID, NO_LEADER]
    shown = admin.metadata.topic("t")
    assert shown is not None
    assert admin.metadata.offline_replicas(shown.partitions[1]) == [BROKER_ID]
    admin.disk.directories[0].failure = None
    await admin.restart()
    assert leaders(admin, "t") == [BROKER_ID, BROKER_ID]


async def test_a_topic_from_before_topic_ids_gets_one(admin: Admin) -> None:
    await admin.znodes.create(
        "/brokers/topics/old", TopicZnode.encode(None, {0: ReplicaAssignment((BROKER_ID,))})
    )
    admin.disk.add("old", 0, TOPIC_ID)
    await admin.restart()
    assert (await store.read_topics(admin.znodes))["old"].info.topic_id == TOPIC_ID
    assert leaders(admin, "old") == [BROKER_ID]


async def test_partitions_of_other_brokers_are_shown_but_not_led(admin: Admin) -> None:
    states = {0: PartitionState(2, 0, (2,), 1), 1: PartitionState(2, 0, (2,), 1)}
    assignment = {0: (2, 3), 1: (2, BROKER_ID)}
    await admin.stop()
    await admin.open()
    await store.create_topic(admin.znodes, "far", TOPIC_ID, assignment, {})
    for number, state in states.items():
        data = PartitionStateZnode.encode(state)
        await admin.znodes.create(PartitionStateZnode.path("far", number), data, make_parents=True)
    await admin.load()
    assert leaders(admin, "far") == [NO_LEADER, NO_LEADER]
    assert not admin.replicas.led


async def test_a_topic_that_cannot_be_read_is_left_alone_with_its_logs(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    await admin.topics.create_topic(TopicSpec("t", 2, 1))
    await admin.topics.create_topic(TopicSpec("other"))
    good, _ = await admin.znodes.get(TopicZnode.path("t"))
    await admin.znodes.set(TopicZnode.path("t"), b"{")
    await admin.restart()
    assert "topic t cannot be read" in caplog.text
    assert leaders(admin, "other") == [BROKER_ID]
    assert admin.metadata.topic("t") is None
    assert admin.disk.deleted == []
    assert (await admin.znodes.get(TopicZnode.path("t")))[0] == b"{"
    await admin.znodes.set(TopicZnode.path("t"), good)
    await admin.restart()
    assert leaders(admin, "t") == [BROKER_ID, BROKER_ID]


async def test_a_state_that_cannot_be_read_is_made_again_by_the_epochs_of_the_log(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("t", 2, 1))
    admin.disk.found[TopicPartition("t", 0)].leader_epochs.latest_epoch = 7
    await admin.znodes.set(PartitionStateZnode.path("t", 0), b"[]")
    await admin.restart()
    states = (await store.read_topics(admin.znodes))["t"].states
    assert (states[0].leader, states[0].leader_epoch) == (BROKER_ID, 8)
    assert (states[1].leader, states[1].leader_epoch) == (BROKER_ID, 1)
