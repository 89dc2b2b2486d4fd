"""Topics on a real store: made, extended, deleted; store first, metadata last."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.administration.topic_rules import TopicSpec
from barnabas.cluster.coordination.contract import StoreFailed
from barnabas.cluster.embedded.journal import Journal
from barnabas.cluster.stores import topics as store
from barnabas.cluster.znodes.layout import TopicZnode
from barnabas.cluster.znodes.notifications import DeleteTopicsZnode
from barnabas.core.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopicException,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import NO_LEADER, TopicPartition
from barnabas.core.scheduler import InlineBackground
from tests.unit.controller.support import BROKER_ID, Admin


def _submit_later(
    self: InlineBackground, work: Any, done: Callable[[Any], None], failed: Callable[[BaseException], None]
) -> None:
    def run() -> None:
        try:
            result = work()
        except OSError as error:
            failed(error)
        else:
            done(result)

    asyncio.get_running_loop().call_later(0.001, run)


async def test_a_new_topic_is_in_the_store_led_and_shown(admin: Admin) -> None:
    created = await admin.topics.create_topic(TopicSpec("t", 3, 1, configs={"retention.ms": "5"}))
    assert (created.num_partitions, created.replication_factor) == (3, 1)
    assert created.config.retention_ms == 5

    stored = (await store.read_topics(admin.znodes))["t"]
    assert stored.info.topic_id == created.topic_id
    assert stored.config == {"retention.ms": "5"}
    assert {state.leader for state in stored.states.values()} == {BROKER_ID}

    assert {tp.partition for tp in admin.replicas.led} == {0, 1, 2}
    assert admin.led("t", 2).log.config.retention_ms == 5
    assert admin.led("t").leader_epoch == 0

    shown = admin.metadata.topic("t")
    assert shown is not None
    assert shown.topic_id == created.topic_id
    assert [(p.leader, p.isr) for p in shown.partitions] == [(BROKER_ID, (BROKER_ID,))] * 3


async def test_the_defaults_are_those_of_the_broker(admin: Admin) -> None:
    admin.static["num.partitions"] = "4"
    await admin.restart()
    assert (await admin.topics.create_topic(TopicSpec("t"))).num_partitions == 4


async def test_a_trial_leaves_nothing_behind(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("t", 3, 1), validate_only=True)
    assert await store.read_topics(admin.znodes) == {}
    assert "t" not in admin.metadata
    assert not admin.replicas.led


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (TopicSpec("taken"), TopicAlreadyExists),
        (TopicSpec("a b"), InvalidTopicException),
        (TopicSpec("t", 0, 1), InvalidPartitions),
        (TopicSpec("t", 1, 2), InvalidReplicationFactor),
        (TopicSpec("t", configs={"retention.msec": "1"}), InvalidConfig),
        (TopicSpec("t", configs={"retention.ms": "soon"}), InvalidConfig),
        (TopicSpec("t", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}), InvalidConfig),
        (TopicSpec("t", configs={"retention.ms": None}), InvalidConfig),
    ],
)
async def test_what_the_rules_refuse_is_not_made(
    admin: Admin, spec: TopicSpec, expected: type[Exception]
) -> None:
    await admin.topics.create_topic(TopicSpec("taken"))
    with pytest.raises(expected):
        await admin.topics.create_topic(spec)
    assert list(await store.read_topics(admin.znodes)) == ["taken"]


async def test_two_creations_of_one_name_have_one_winner(admin: Admin) -> None:
    outcomes = await asyncio.gather(
        *(admin.topics.create_topic(TopicSpec("t")) for _ in range(3)), return_exceptions=True
    )
    assert sorted(isinstance(each, TopicAlreadyExists) for each in outcomes) == [False, True, True]


async def test_many_partitions_let_others_run_in_between(admin: Admin) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await admin.topics.create_topic(TopicSpec("t", 1000, 1))
    task.cancel()
    assert turns >= 1000 / 64


async def test_a_partition_whose_disk_fails_is_shown_without_a_leader(admin: Admin) -> None:
    admin.replicas.broken = {TopicPartition("t", 1): KafkaStorageError("full")}
    await admin.topics.create_topic(TopicSpec("t", 2, 1))
    await admin.settle()
    shown = admin.metadata.topic("t")
    assert shown is not None
    assert [p.leader for p in shown.partitions] == [BROKER_ID, NO_LEADER]
    assert admin.metadata.offline_replicas(shown.partitions[1]) == [BROKER_ID]


async def test_a_store_that_cannot_write_is_a_storage_error(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def multi(operations: object) -> None:
        raise StoreFailed("disk full")

    monkeypatch.setattr(admin.znodes, "multi", multi)
    with pytest.raises(KafkaStorageError):
        await admin.topics.create_topic(TopicSpec("t"))
    assert "t" not in admin.metadata


@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_a_store_that_fails_after_the_first_writes_ends_the_wait(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """The topic is written, and then there is no space for what the controller makes of it."""
    append = Journal.append

    def append_a_few(journal: Journal, frames: bytes) -> None:
        nonlocal writes
        writes -= 1
        if writes < 0:
            raise OSError(errno.ENOSPC, "no space left on device")
        append(journal, frames)

    # The disk answers later, as a thread does: the loss comes while the request waits.
    monkeypatch.setattr(InlineBackground, "submit", _submit_later)
    monkeypatch.setattr(Journal, "append", append_a_few)

    async def create_and_delete() -> None:
        await admin.topics.create_topic(TopicSpec("t"))
        await admin.topics.delete_topic("t")

    with pytest.raises(KafkaStorageError):
        await asyncio.wait_for(create_and_delete(), 5)


async def test_a_lost_session_ends_the_wait(admin: Admin) -> None:
    await admin.controller.close()
    is_written = asyncio.Event()
    await admin.znodes.exists(TopicZnode.path("t"), lambda _: is_written.set())
    creating = asyncio.create_task(admin.topics.create_topic(TopicSpec("t")))
    await is_written.wait()
    await asyncio.sleep(0)
    admin.znodes.lose()
    with pytest.raises(KafkaStorageError):
        await asyncio.wait_for(creating, 5)


async def test_auto_creation_makes_what_is_missing_and_says_what_it_cannot_make(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("old"))
    failures = await admin.topics.auto_create(["new", "old", "new", "bad name", "__consumer_offsets"])
    assert set(admin.metadata.topic_names()) == {"old", "new"}
    assert isinstance(failures.pop("bad name"), InvalidTopicException)
    assert isinstance(failures.pop("__consumer_offsets"), UnknownTopicOrPartition)
    assert failures == {}


async def test_more_partitions_are_stored_led_and_shown(admin: Admin) -> None:
    await admin.topics.create_topic(TopicSpec("t", 1, 1, configs={"retention.ms": "5"}))
    await admin.topics.create_partitions("t", 3, validate_only=True)
    assert len(admin.replicas.led) == 1
    await admin.topics.create_partitions("t", 3)
    assert len((await store.read_topics(admin.znodes))["t"].states) == 3
    assert admin.led("t", 2).log.config.retention_ms == 5
    shown = admin.metadata.topic("t")
    assert shown is not None
    assert len(shown.partitions) == 3
    with pytest.raises(UnknownTopicOrPartition):
        await admin.topics.create_partitions("nobody", 3)
    with pytest.raises(InvalidPartitions):
        await admin.topics.create_partitions("t", 3)


async def test_a_deleted_topic_leaves_nothing_but_its_files_for_a_while(admin: Admin) -> None:
    created = await admin.topics.create_topic(TopicSpec("t", 2, 1, configs={"retention.ms": "5"}))
    assert await admin.topics.delete_topic("t") == created.topic_id
    assert await store.read_topics(admin.znodes) == {}
    assert await admin.znodes.children(DeleteTopicsZnode.PARENT) == []
    assert await admin.znodes.children("/config/topics") == []
    assert not admin.replicas.led
    assert admin.disk.deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert admin.replicas.forgotten == ["t"]
    assert "t" not in admin.metadata
    assert admin.configs.topic_config("t").retention_ms != 5
    with pytest.raises(UnknownTopicOrPartition):
        await admin.topics.delete_topic("t")


async def test_a_name_can_be_used_again_with_another_id(admin: Admin) -> None:
    first = await admin.topics.create_topic(TopicSpec("t"))
    await admin.topics.delete_topic("t")
    second = await admin.topics.create_topic(TopicSpec("t"))
    assert first.topic_id != second.topic_id
    assert admin.metadata.topic_by_id(first.topic_id) is None


async def test_a_deletion_that_fails_half_way_is_finished_by_the_next_start(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.topics.create_topic(TopicSpec("t", 2, 1))

    def stop_replica(topic_partition: TopicPartition, *, delete: bool) -> None:
        raise KafkaStorageError("the disk is gone")

    monkeypatch.setattr(admin.replicas, "stop_replica", stop_replica)
    await store.mark_for_deletion(admin.znodes, "t")
    await admin.settle()
    assert "t" not in admin.metadata, "nobody sees it any more"
    assert list(await store.read_topics(admin.znodes)) == ["t"]
    await admin.restart()
    assert "t" not in admin.metadata
    assert admin.disk.deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert await store.read_topics(admin.znodes) == {}
