"""Removing much, and removing in spite of what goes wrong.

Offsets of a deleted topic must never apply to a topic that comes back under its name: their tombstones are
divided where a batch would be too large, tried again when they cannot be written, and written when a shard
that was being loaded has been.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.group.offsets import expiry
from barnabas.coordinator.runtime.runtime import CARRY_THROUGH_BACKOFF
from barnabas.core.errors import KafkaError, KafkaStorageError, MessageTooLarge, NotEnoughReplicas
from barnabas.handlers.delete_groups import DELETE_GROUPS
from barnabas.handlers.offset_delete import OFFSET_DELETE
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.unit.coordinator.support import Groups
from tests.unit.coordinator.test_offsets import WEEK_MS, stage

MANY = 40
SMALL_BATCH_BYTES = 400


def with_many_offsets(*names: str, **settings: Any) -> Groups:
    """Groups with more offsets than their tombstones fit into a batch."""
    groups = Groups(**settings)
    for group in names:
        for partition in range(MANY):
            assert groups.commit(100 + partition, group=group, partition=partition) == 0
    groups.log.bytes_max = SMALL_BATCH_BYTES
    return groups


def offsets(groups: Groups, group: str = "g") -> set[int]:
    return {groups.fetch(group=group, partition=partition) for partition in range(MANY)}


def check_gone(groups: Groups, *names: str) -> None:
    """Gone from memory, and from a replay of the log."""
    for each in (groups, Groups(log=groups.log)):
        for group in names:
            assert offsets(each, group) == {-1}
        assert not each.shard.groups.keys() & set(names)


def later(groups: Groups, ms: float) -> None:
    groups.advance(ms)
    groups.scheduler.run_due()


# Much


def test_the_offsets_of_a_deleted_topic_are_removed_in_as_many_batches_as_it_takes() -> None:
    groups = with_many_offsets("g", "h")
    before = len(groups.log.batches)
    groups.delete_topic("t")
    check_gone(groups, "g", "h")
    assert len(groups.log.batches) > before + 1


def test_much_that_expires_is_removed_in_as_many_batches_as_it_takes() -> None:
    groups = with_many_offsets("g")
    later(groups, WEEK_MS + groups.settings.offsets_retention_check_interval_ms)
    check_gone(groups, "g")


def test_a_large_group_can_be_deleted() -> None:
    groups = with_many_offsets("g")
    answer = groups.serve(DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]), 3)
    assert answer.value.results[0].error_code == 0
    check_gone(groups, "g")


def test_many_offsets_can_be_deleted_at_once() -> None:
    groups = with_many_offsets("g")
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name="t",
                partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in range(MANY)],
            )
        ],
    )
    answer = groups.serve(OFFSET_DELETE, request, 0)
    assert {each.error_code for each in answer.value.topics[0].partitions} == {0}
    check_gone(groups, "g")


def test_a_deletion_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TURN", MANY // 4)
    groups = with_many_offsets("g")
    groups.delete_topic("t")
    assert len(offsets(groups) - {-1}) == MANY - MANY // 4
    for _ in range(5):
        groups.scheduler.run_due()
    check_gone(groups, "g")


def test_records_that_make_sense_only_together_are_refused_when_there_are_too_many() -> None:
    groups = Groups()
    groups.topics.put("t", 100)
    groups.log.bytes_max = SMALL_BATCH_BYTES
    assert groups.beat("m", 0, topics=["t"]).error_code == MessageTooLarge.code
    assert groups.log.batches == []
    assert groups.shard.groups == {}


# In spite of what goes wrong


@pytest.mark.parametrize("error", [NotEnoughReplicas("too few"), KafkaStorageError("the disk")])
def test_tombstones_that_cannot_be_written_are_tried_again(error: KafkaError) -> None:
    groups = with_many_offsets("g")
    groups.log.error = error
    groups.delete_topic("t")
    later(groups, CARRY_THROUGH_BACKOFF.first_ms)
    later(groups, 2 * CARRY_THROUGH_BACKOFF.first_ms)
    assert -1 not in offsets(groups)
    groups.log.error = None
    later(groups, 4 * CARRY_THROUGH_BACKOFF.first_ms)
    check_gone(groups, "g")


def test_what_was_committed_since_the_deletion_stays() -> None:
    groups = with_many_offsets("g")
    groups.log.error = NotEnoughReplicas("too few")
    groups.delete_topic("t")
    groups.log.error = None
    groups.commit(7, partition=3)
    assert stage(groups, producer_id=1, offset=8) == 0
    later(groups, CARRY_THROUGH_BACKOFF.first_ms)
    assert offsets(groups) == {100, 7, -1}  # of partition 0 a later offset is staged
    assert 0 in groups.shard.offsets.pending[1]["g"]["t"]
    assert groups.fetch(partition=3) == 7


def test_a_deletion_waits_for_a_shard_that_is_being_loaded() -> None:
    former = with_many_offsets("g")
    groups = Groups(log=former.log)
    groups.log.leader_epoch = 1
    groups.runtime.elected(0, 1)
    groups.delete_topic("t")
    groups.scheduler.run_due()
    check_gone(groups, "g")


def test_a_deletion_is_forgotten_with_the_partition() -> None:
    groups = with_many_offsets("g")
    groups.log.error = NotEnoughReplicas("too few")
    groups.delete_topic("t")
    groups.runtime.resigned(0)
    groups.log.error = None
    before = len(groups.log.batches)
    later(groups, CARRY_THROUGH_BACKOFF.max_ms)
    assert len(groups.log.batches) == before


def test_a_member_that_could_not_be_removed_is_removed_later() -> None:
    groups = Groups()
    groups.topics.put("t", 2)
    groups.beat("m", 0, topics=["t"])
    groups.log.error = NotEnoughReplicas("too few")
    groups.advance(60_000)
    assert "m" in groups.shard.groups["g"].members
    groups.log.error = None
    groups.advance(1_000)
    assert groups.shard.groups["g"].is_empty


def test_expiry_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = with_many_offsets("g")

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    later(groups, WEEK_MS - 1)
    with monkeypatch.context() as patch:
        patch.setattr(groups.shard.offset_removal, "expire", broken)
        later(groups, groups.settings.offsets_retention_check_interval_ms)
    assert -1 not in offsets(groups)
    later(groups, groups.settings.offsets_retention_check_interval_ms)
    check_gone(groups, "g")
