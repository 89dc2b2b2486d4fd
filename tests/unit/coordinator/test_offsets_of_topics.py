"""Offsets belong to a topic id, not to a name. An offset from before a topic's deletion counts for nothing
once another topic has the name, even without a tombstone. A topic that is only missing in the metadata is not
deleted."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.group.offsets import deleted_topics, expiry
from barnabas.coordinator.group.offsets.deleted_topics import ASK_AGAIN_MS
from barnabas.coordinator.group.offsets.records import (
    OffsetAndMetadata,
    decode_value,
    encode_value,
    is_of_another_topic,
    pack,
)
from barnabas.coordinator.group.state.record_schemas import OffsetCommitValue
from barnabas.coordinator.runtime.timers import RETRY_MS
from barnabas.core.errors import NotEnoughReplicas
from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from barnabas.records.batch import RecordBatch
from barnabas.records.record import iterate_records
from tests.unit.coordinator.support import Groups
from tests.unit.coordinator.test_offsets import end, stage, subscription

ONE, OTHER = Uuid(b"1" * 16), Uuid(b"2" * 16)


def with_offset(**settings: Any) -> Groups:
    groups = Groups(**settings)
    groups.topics.put("t", 2)
    assert groups.commit(7) == 0
    return groups


def recreate(groups: Groups, name: str = "t") -> None:
    """Recreate a topic while no coordinator notices the deletion."""
    groups.topics.remove(name)
    groups.topics.put(name, 2)


def everything(groups: Groups, group: str = "g") -> list[str]:
    asked = OffsetFetchRequestGroup(group_id=group, topics=None)
    (found,) = groups.fetch_groups([asked]).value
    return [topic.name for topic in found.topics]


def test_an_offset_of_a_deleted_topic_does_not_apply_to_its_successor() -> None:
    groups = with_offset()
    assert (groups.fetch(), everything(groups)) == (7, ["t"])
    recreate(groups)
    for each in (groups, Groups(log=groups.log, topics=groups.topics)):
        assert (each.fetch(), everything(each)) == (-1, [])
    groups.commit(3)
    assert (groups.fetch(), everything(groups)) == (3, ["t"])


def test_a_topic_that_is_not_heard_of_is_not_deleted() -> None:
    groups = with_offset(offsets_retention_check_interval_ms=1_000)
    after = Groups(log=groups.log, offsets_retention_check_interval_ms=1_000)
    after.advance(10_000)
    assert (after.fetch(), everything(after)) == (7, ["t"])


@pytest.mark.parametrize("is_read", [True, False])
def test_expiry_removes_offsets_of_topics_that_others_took_the_place_of(is_read: bool) -> None:
    groups = Groups(offsets_retention_check_interval_ms=1_000)
    groups.topics.put("t", 2)
    groups.topics.put("u", 2)
    protocols = (("range", subscription("t" if is_read else "u")),)
    (member,), generation = groups.stable_group(1, session_ms=600_000, protocols=protocols)
    for topic in "tu":
        groups.commit(7, topic=topic, member=member, generation=generation)
    recreate(groups)
    groups.advance(2_000)
    for each in (groups, Groups(log=groups.log)):
        assert (each.fetch(topic="t"), each.fetch(topic="u")) == (-1, 7)
    assert groups.state() == "Stable"


def test_a_staged_offset_of_a_deleted_topic_does_not_apply_to_its_successor() -> None:
    groups = Groups()
    groups.topics.put("t", 2)
    assert stage(groups, 1, 7) == 0
    recreate(groups)
    end(groups, 1, commit=True)
    assert groups.fetch() == -1


def test_a_deletion_that_is_heard_of_late_leaves_what_the_successor_has() -> None:
    groups = with_offset()
    former = groups.topics.topic("t")
    assert former is not None
    recreate(groups)
    groups.commit(3, partition=1)
    groups.coordinator.topic_deleted("t", former.topic_id)
    assert groups.shard.offsets.get("g", "t", 0) is None
    assert groups.fetch(partition=1) == 3


def test_a_deletion_that_could_not_be_written_is_made_up_for_by_the_next_coordinator() -> None:
    groups = with_offset(offsets_retention_check_interval_ms=1_000)
    groups.log.error = NotEnoughReplicas("too few")
    groups.delete_topic("t")
    groups.log.error = None
    groups.runtime.resigned(0)
    groups.topics.put("t", 2)
    after = Groups(log=groups.log, topics=groups.topics, offsets_retention_check_interval_ms=1_000)
    assert after.fetch() == -1
    after.advance(2_000)
    assert Groups(log=groups.log).fetch() == -1


# Topics that nobody has any more


def after_a_lost_deletion(**settings: Any) -> tuple[Groups, Uuid]:
    """The coordinator received the deletion and ended before it could write anything."""
    groups = with_offset()
    former = groups.topics.topic("t")
    assert former is not None
    assert stage(groups, 1, 9, group="staged") == 0
    groups.topics.remove("t")
    after = Groups(log=groups.log, topics=groups.topics, **settings)
    after.advance(1)
    return after, former.topic_id


def test_a_coordinator_removes_what_it_replays_of_topics_that_the_store_has_not_any_more() -> None:
    groups, _ = after_a_lost_deletion(stored={"t": None})
    assert groups.asked == [{"t"}]
    for each in (groups, Groups(log=groups.log)):
        assert (each.fetch(), everything(each)) == (-1, [])
        assert not each.shard.offsets.is_pending("staged", "t", 0)
        assert "g" not in each.shard.groups


@pytest.mark.parametrize("is_the_same", [True, False])
def test_a_topic_of_the_store_is_the_one_that_has_the_id(is_the_same: bool) -> None:
    groups = with_offset()
    former = groups.topics.topic("t")
    assert former is not None
    stored: dict[str, Uuid | None] = {"t": former.topic_id if is_the_same else OTHER}
    after = Groups(log=groups.log, stored=stored)
    after.advance(1)
    assert (after.shard.offsets.get("g", "t", 0) is not None) is is_the_same


def test_a_store_that_does_not_say_is_asked_again_and_nothing_is_removed_until_then() -> None:
    groups, _ = after_a_lost_deletion()
    groups.advance(ASK_AGAIN_MS)
    assert groups.asked == [{"t"}, {"t"}]
    assert groups.fetch() == 7
    groups.stored["t"] = None
    groups.advance(2 * ASK_AGAIN_MS)
    assert groups.fetch() == -1
    groups.advance(100 * ASK_AGAIN_MS)
    assert len(groups.asked) == 3, "nothing is left to ask for"


def test_a_topic_that_the_store_names_without_an_id_is_left_alone() -> None:
    groups, _ = after_a_lost_deletion(stored={"t": ZERO_UUID})
    assert groups.fetch() == 7


def test_what_the_metadata_know_by_then_is_not_removed() -> None:
    """The store was asked, and then the topic was made and an offset committed for it."""
    groups = with_offset()
    groups.topics.remove("t")
    after = Groups(log=groups.log, topics=groups.topics)
    after.unanswered = []
    after.advance(1)
    after.topics.put("t", 2)
    assert after.commit(3, partition=1) == 0
    assert after.commit(4, partition=1, group="h", retention_ms=5_000, version=4) == 0
    after.unanswered[0]({"t": None})
    after.advance(1)
    assert after.shard.offsets.get("g", "t", 0) is None
    assert (after.fetch(partition=1), after.fetch(partition=1, group="h")) == (3, 4)


def test_a_store_that_takes_long_is_asked_one_question_at_a_time() -> None:
    groups = with_offset()
    groups.topics.remove("t")
    after = Groups(log=groups.log, topics=groups.topics, offsets_retention_check_interval_ms=1_000)
    after.unanswered = []
    after.advance(60_000)
    assert len(after.unanswered) == 1
    after.unanswered[0]({})
    after.advance(2_000)
    assert len(after.unanswered) == 2


def test_an_offset_without_an_id_goes_only_with_the_name() -> None:
    groups = with_offset()
    assert groups.commit(4, partition=1, retention_ms=1 << 40, version=4) == 0
    groups.topics.remove("t")
    successor: dict[str, Uuid | None] = {"t": OTHER}
    after = Groups(log=groups.log, stored=successor, offsets_retention_check_interval_ms=1_000)
    after.advance(1)
    assert (after.shard.offsets.get("g", "t", 0), after.fetch(partition=1)) == (None, 4)
    after.stored["t"] = None
    after.advance(1_000)
    assert after.fetch(partition=1) == -1


def test_a_removal_that_cannot_be_written_is_tried_again() -> None:
    groups = with_offset()
    groups.topics.remove("t")
    after = Groups(log=groups.log, stored={"t": None})
    after.log.error = NotEnoughReplicas("too few")
    after.advance(1)
    assert after.fetch() == 7
    after.log.error = None
    after.advance(RETRY_MS)
    assert after.fetch() == -1


def test_many_lost_offsets_are_removed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TURN", 3)
    monkeypatch.setattr(deleted_topics, "GROUPS_PER_TURN", 2)
    groups = Groups()
    groups.topics.put("t", 10)
    for number in range(10):
        groups.commit(7, group=f"g{number}", partition=number)
    groups.topics.remove("t")
    after = Groups(log=groups.log, stored={"t": None})
    after.advance(1_000)
    assert after.asked == [{"t"}]
    assert not after.shard.groups


# As bytes


@pytest.mark.parametrize("metadata", ["", "noted", "x" * 200])
@pytest.mark.parametrize("topic_id", [ONE, ZERO_UUID])
def test_a_commit_is_written_as_the_schema_says(metadata: str, topic_id: Uuid) -> None:
    value = OffsetAndMetadata(42, 5, metadata, 1_000, topic_id=topic_id)
    written = encode_value(value)
    version = 4 if topic_id == ONE else 3
    said = OffsetCommitValue(
        offset=42, leader_epoch=5, metadata=metadata, commit_timestamp=1_000, topic_id=topic_id
    )
    assert written == version.to_bytes(2, "big") + said.encode(version)
    assert decode_value(written) == value
    assert is_of_another_topic(pack(written, 0), OTHER) is (topic_id == ONE)
    assert not is_of_another_topic(pack(written, 0), ONE)
    assert not is_of_another_topic(pack(written, 0), ZERO_UUID)


def test_values_that_look_like_the_usual_one_are_read_as_what_they_are() -> None:
    """Kafka writes version 4 without an id, too; with 18 letters of metadata it has the usual size."""
    said = OffsetCommitValue(offset=42, leader_epoch=5, metadata="m" * 18, commit_timestamp=1_000)
    written = b"\0\4" + said.encode(4)
    assert len(written) == len(encode_value(OffsetAndMetadata(42, 5, "", 1_000, topic_id=ONE)))
    assert decode_value(written) == OffsetAndMetadata(42, 5, "m" * 18, 1_000)


def test_a_commit_that_names_its_expiry_has_no_id() -> None:
    groups = with_offset()
    groups.commit(7, partition=1, retention_ms=5_000, version=4)
    values = [record.value for batch in groups.log.batches for record in iterate_records(RecordBatch(batch))]
    assert [value[1] for value in values if value] == [4, 1]
