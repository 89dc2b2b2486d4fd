"""Consumer protocol as transcripts of heartbeats."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.group.state.settings import ConsumerTimes, MigrationPolicy
from barnabas.core.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InvalidRegularExpression,
    InvalidRequest,
    MemberIdRequired,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from barnabas.core.ids import Uuid
from barnabas.handlers.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.unit.coordinator.support import Groups


def partitions(response: ConsumerGroupHeartbeatResponse) -> dict[Uuid, list[int]] | None:
    if response.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in response.assignment.topic_partitions}


def with_topic(count: int = 4, **settings: Any) -> tuple[Groups, Uuid]:
    groups = Groups(**settings)
    return groups, groups.topics.put("t", count)


def test_a_lone_member_gets_everything_at_once() -> None:
    groups, topic = with_topic()
    joined = groups.beat("m", 0, topics=["t"])
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    assert joined.heartbeat_interval_ms == 5_000
    assert partitions(joined) == {topic: [0, 1, 2, 3]}
    assert groups.shard.groups["g"].state.value == "Stable"
    again = groups.beat("m", 1)
    assert (again.member_epoch, again.assignment) == (1, None)


def test_a_partition_changes_hands_only_when_it_was_given_up() -> None:
    groups, topic = with_topic()
    groups.beat("a", 0, topics=["t"])
    joined = groups.beat("b", 0, topics=["t"])
    assert (joined.member_epoch, partitions(joined)) == (2, {})
    told = groups.beat("a", 1)
    assert (told.member_epoch, partitions(told)) == (1, {topic: [0, 1]})
    assert partitions(groups.beat("b", 2)) is None
    assert groups.beat("a", 1, owned={topic: [0, 1, 2, 3]}).member_epoch == 1
    assert partitions(groups.beat("b", 2)) is None
    assert groups.beat("a", 1, owned={topic: [0, 1]}).member_epoch == 2
    assert partitions(groups.beat("b", 2)) == {topic: [2, 3]}
    assert groups.shard.groups["g"].state.value == "Stable"


def test_a_member_that_leaves_frees_its_partitions() -> None:
    groups, topic = with_topic()
    groups.beat("a", 0, topics=["t"])
    groups.beat("b", 0, topics=["t"])
    groups.settle()
    assert groups.beat("a", -1).member_epoch == -1
    assert groups.settle() == {"b": {topic: [0, 1, 2, 3]}}
    assert groups.beat("a", 2).error_code == UnknownMemberId.code
    groups.beat("b", -1)
    assert groups.shard.groups["g"].state.value == "Empty"


def test_a_silent_member_is_removed() -> None:
    groups, topic = with_topic()
    groups.beat("a", 0, topics=["t"])
    groups.beat("b", 0, topics=["t"])
    groups.settle()
    groups.advance(40_000)
    groups.beat("b", 2)
    groups.advance(5_000)
    assert groups.settle() == {"b": {topic: [0, 1, 2, 3]}}


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    groups, topic = with_topic()
    groups.beat("a", 0, topics=["t"], rebalance_ms=20_000)
    groups.beat("b", 0, topics=["t"])
    groups.beat("a", 1, owned={topic: [0, 1, 2, 3]})
    groups.advance(19_000)
    assert groups.beat("a", 1, owned={topic: [0, 1, 2, 3]}).error_code == 0
    groups.beat("b", 2)
    groups.advance(1_000)
    assert groups.beat("a", 1).error_code == UnknownMemberId.code
    assert groups.settle() == {"b": {topic: [0, 1, 2, 3]}}


def test_an_assignment_is_told_again_to_who_says_everything() -> None:
    """A member that lost the response to its last heartbeat sends a full request."""
    groups, topic = with_topic()
    groups.beat("a", 0, topics=["t"])
    groups.beat("b", 0, topics=["t"])
    everything = {topic: [0, 1, 2, 3]}
    assert partitions(groups.beat("a", 1)) == {topic: [0, 1]}
    assert partitions(groups.beat("a", 1)) is None
    assert partitions(groups.beat("a", 1, owned=everything)) is None
    again = groups.beat("a", 1, topics=["t"], owned=everything, rebalance_ms=30_000)
    assert (again.member_epoch, partitions(again)) == (1, {topic: [0, 1]})


def test_a_member_at_another_epoch_is_fenced_unless_it_missed_the_answer() -> None:
    groups, topic = with_topic()
    groups.beat("a", 0, topics=["t"])
    groups.topics.put("t", 6)
    grown = groups.beat("a", 1, owned={topic: [0, 1, 2, 3]})
    assert (grown.member_epoch, partitions(grown)) == (2, {topic: [0, 1, 2, 3, 4, 5]})
    assert groups.beat("a", 3).error_code == FencedMemberEpoch.code
    assert groups.beat("a", 1).error_code == FencedMemberEpoch.code
    assert groups.beat("a", 1, owned={topic: [7]}).error_code == FencedMemberEpoch.code
    assert groups.beat("a", 1, owned={topic: [0, 1, 2, 3]}).member_epoch == 2


def test_topics_that_appear_and_grow_are_noticed() -> None:
    groups = Groups()
    assert partitions(groups.beat("m", 0, topics=["t", "later"])) == {}
    topic = groups.topics.put("t", 1)
    assert partitions(groups.beat("m", 1)) == {topic: [0]}
    later = groups.topics.put("later", 2)
    assert partitions(groups.beat("m", 2)) == {topic: [0], later: [0, 1]}
    groups.topics.remove("t")
    assert partitions(groups.beat("m", 3, owned={topic: [0], later: [0, 1]})) == {later: [0, 1]}


def test_a_regular_expression_matches_what_the_member_may_describe() -> None:
    groups = Groups()
    first, secret = groups.topics.put("log-a", 1), groups.topics.put("log-secret", 1)
    groups.broker.hidden_topics = {"log-secret"}
    assert partitions(groups.beat("m", 0, regex="log-.*")) == {first: [0]}
    groups.broker.hidden_topics = set()
    for _ in range(19):
        groups.advance(30_000)
        assert groups.beat("m", 1).assignment is None
    groups.advance(30_000)
    assert partitions(groups.beat("m", 1)) == {first: [0], secret: [0]}


def test_a_regular_expression_follows_the_topics() -> None:
    groups = Groups()
    first = groups.topics.put("log-a", 1)
    groups.topics.put("other", 1)
    assert partitions(groups.beat("m", 0, regex="log-.*")) == {first: [0]}
    second = groups.topics.put("log-b", 1)
    groups.advance(10_000)
    assert partitions(groups.beat("m", 1)) == {first: [0], second: [0]}
    again = Groups(log=groups.log)
    assert again.shard.groups["g"].is_subscribed_to("log-b")
    assert groups.beat("n", 0, regex="(").error_code == InvalidRegularExpression.code
    groups.beat("m", -1)
    group = groups.shard.registry.find_consumer("g")
    assert group is not None
    assert group.regexes == {}


def test_a_pattern_is_compiled_for_members_only() -> None:
    groups, _ = with_topic()
    assert groups.beat("m", 0, topics=["t"]).error_code == 0
    assert groups.beat("stranger", 1, regex="(").error_code == UnknownMemberId.code
    assert groups.beat("m", 7, regex="(").error_code == FencedMemberEpoch.code
    assert groups.beat("m", 1, regex="(").error_code == InvalidRegularExpression.code
    assert groups.beat("m", -1, regex="(").error_code == 0


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_choose_the_assignor(assignor: str) -> None:
    groups = Groups()
    topics = [groups.topics.put(name, 3) for name in ("t", "u")]
    for member in ("a", "b"):
        assert groups.beat(member, 0, topics=["t", "u"], assignor=assignor).error_code == 0
    held = groups.settle()
    counts = sorted(sum(map(len, each.values())) for each in held.values())
    assert counts == ([3, 3] if assignor == "uniform" else [2, 4])
    if assignor == "range":
        assert held["a"] == {topic: [0, 1] for topic in topics}
    assert groups.beat("c", 0, topics=["t"], assignor="no").error_code == UnsupportedAssignor.code


def test_commits_come_at_the_members_epoch() -> None:
    groups, _ = with_topic()
    groups.beat("m", 0, topics=["t"])
    assert groups.commit(5, member="m", generation=1) == 0
    assert groups.commit(6, member="m", generation=2) == StaleMemberEpoch.code
    assert groups.commit(6, member="x", generation=1) == UnknownMemberId.code
    assert groups.commit(6, member="m", generation=1, version=8) == 35
    assert groups.fetch() == 5


def test_a_group_has_a_size_limit() -> None:
    groups, _ = with_topic(consumer_max_size=1)
    groups.beat("a", 0, topics=["t"])
    assert groups.beat("b", 0, topics=["t"]).error_code == GroupMaxSizeReached.code


def test_requests_that_make_no_sense_are_refused() -> None:
    groups, topic = with_topic()
    assert groups.beat("", 0, topics=["t"]).error_code == InvalidRequest.code
    assert groups.beat("m", 0).error_code == InvalidRequest.code
    assert groups.beat("\0 ", 5).error_code == InvalidRequest.code, "Java trims it to nothing"
    assert groups.beat("m", -2).error_code == InvalidRequest.code
    assert groups.beat("m", -3).error_code == InvalidRequest.code
    assert groups.beat("m", 0, group="", topics=["t"]).error_code == InvalidRequest.code
    assert groups.beat("m", 5).error_code == GroupIdNotFound.code
    assert groups.beat("m", 5, owned={topic: [0]}).error_code == GroupIdNotFound.code
    assert groups.shard.groups == {}
    first = groups.beat("", 0, topics=["t"], version=0)
    assert first.member_id


# Static members


def test_a_static_member_that_comes_back_has_what_it_had() -> None:
    groups, topic = with_topic()
    groups.beat("a", 0, topics=["t"], instance="i")
    groups.beat("b", 0, topics=["t"])
    held = groups.settle()
    assert groups.beat("a2", 0, topics=["t"], instance="i").error_code == UnreleasedInstanceId.code
    assert groups.beat("a", -2, instance="i").member_epoch == -2
    back = groups.beat("a2", 0, topics=["t"], instance="i")
    assert (back.error_code, partitions(back)) == (0, held["a"])
    assert back.member_epoch == 2
    assert groups.beat("a", 2, instance="i").error_code == FencedInstanceId.code
    assert groups.settle()["b"] == held["b"]
    assert Groups(log=groups.log).shard.groups["g"].members.keys() == {"a2", "b"}
    assert topic


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    groups, _ = with_topic()
    groups.beat("a", 0, topics=["t"], instance="i")
    groups.beat("a", -2, instance="i")
    groups.advance(45_000)
    assert groups.shard.groups["g"].state.value == "Empty"


def test_a_group_may_have_times_of_its_own_and_hears_of_changes() -> None:
    times = {"g": ConsumerTimes(10_000, 2_000)}
    groups, _ = with_topic(consumer_times=lambda group: times[group])
    assert groups.beat("a", 0, topics=["t"]).heartbeat_interval_ms == 2_000
    times["g"] = ConsumerTimes(20_000, 3_000)
    assert groups.beat("a", 1).heartbeat_interval_ms == 3_000
    groups.advance(19_000)
    assert groups.shard.groups["g"].state.value == "Stable"
    groups.advance(1_000)
    assert groups.shard.groups["g"].state.value == "Empty"


# Storage


def test_a_group_survives_its_coordinator() -> None:
    groups, topic = with_topic()
    groups.beat("a", 0, topics=["t"])
    groups.beat("b", 0, topics=["t"])
    held = groups.settle()
    after = Groups(log=groups.log, topics=groups.topics)
    assert after.shard.groups["g"].state.value == "Stable"
    assert after.beat("a", 2, owned=held["a"]).member_epoch == 2
    after.advance(45_000)
    assert after.shard.groups["g"].state.value == "Empty"
    assert topic


def test_a_group_that_has_nothing_left_is_forgotten() -> None:
    groups, _ = with_topic(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=10_000)
    groups.beat("m", 0, topics=["t"])
    groups.commit(1, member="m", generation=1)
    groups.beat("m", -1)
    groups.advance(80_000)
    assert groups.shard.groups == {}
    assert Groups(log=groups.log).shard.groups == {}


# Both protocols


def subscription(*topics: str, owned: tuple[TopicPartition, ...] = ()) -> tuple[tuple[str, bytes], ...]:
    message = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=list(owned))
    return (("cooperative-sticky", b"\0\1" + message.encode(1)),)


def assigned(*numbers: int) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="t", partitions=list(numbers))]
    )
    return b"\0\0" + message.encode(0)


def upgraded(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> tuple[Groups, Uuid, str]:
    """A classic member, joined by one of the consumer protocol."""
    groups, topic = with_topic(migration_policy=policy)
    member, joined = groups.enter(protocols=subscription("t"), session_ms=60_000)
    groups.advance(3_000)
    groups.sync(member, joined.value.generation_id, {member: assigned(0, 1, 2, 3)})
    response = groups.beat("new", 0, topics=["t"])
    assert (response.error_code, response.member_epoch) == (0, 2)
    return groups, topic, member


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets() -> None:
    groups, _ = with_topic()
    (member,), generation = groups.stable_group(1)
    groups.commit(9, member=member, generation=generation)
    assert groups.beat("m", 0, topics=["t"]).error_code == GroupIdNotFound.code
    groups.leave(member)
    assert groups.beat("m", 0, topics=["t"]).error_code == 0
    assert groups.fetch() == 9
    groups.beat("m", -1)
    groups.stable_group(1)
    assert groups.fetch() == 9
    after = Groups(log=groups.log)
    assert (after.state(), after.fetch()) == ("Stable", 9)


def test_a_group_is_upgraded_while_it_works() -> None:
    groups, topic, old = upgraded()
    assert groups.heartbeat(old, 1) == RebalanceInProgress.code
    owns = TopicPartition(topic="t", partitions=[0, 1, 2, 3])
    first = groups.join(member=old, protocols=subscription("t", owned=(owns,)), session_ms=60_000)
    assert (first.error_code, first.value.generation_id) == (0, 1)
    synced = groups.sync(old, 1)
    assert synced.value.assignment == b"\0\1" + assigned(0, 1)[2:]
    assert groups.heartbeat(old, 1) == RebalanceInProgress.code
    keeps = TopicPartition(topic="t", partitions=[0, 1])
    second = groups.join(member=old, protocols=subscription("t", owned=(keeps,)), session_ms=60_000)
    assert second.value.generation_id == 2
    assert groups.sync(old, 2).value.assignment == b"\0\1" + assigned(0, 1)[2:]
    assert groups.heartbeat(old, 2) == 0
    assert partitions(groups.beat("new", 2)) == {topic: [2, 3]}
    assert groups.commit(1, member=old, generation=2) == 0
    assert groups.commit(1, member=old, generation=1) == IllegalGeneration.code
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (described,) = groups.serve(CONSUMER_GROUP_DESCRIBE, request, 1).value.groups
    assert {each.member_id: each.member_type for each in described.members} == {old: 0, "new": 1}


def test_a_group_goes_back_when_the_last_new_member_leaves() -> None:
    groups, _, old = upgraded()
    assert groups.beat("new", -1).error_code == 0
    assert groups.state() == "PreparingRebalance"
    rejoined = groups.join(member=old, protocols=subscription("t"), session_ms=60_000)
    generation = rejoined.value.generation_id
    assert rejoined.value.leader == old
    groups.sync(old, generation, {old: assigned(0)})
    assert groups.state() == "Stable"
    assert Groups(log=groups.log).state() == "Stable"


@pytest.mark.parametrize("odd", [b"", b"x", b"\xff\xff", b"\x7f\xff"])
@pytest.mark.parametrize("end", ["leave", "expire"])
def test_metadata_that_cannot_be_read_keeps_no_member_from_leaving(odd: bytes, end: str) -> None:
    groups, _ = with_topic(migration_policy=MigrationPolicy.BIDIRECTIONAL)
    assert groups.beat("new", 0, topics=["t"]).error_code == 0
    ((name, metadata),) = subscription("t")
    first = groups.join(protocols=(("x", metadata), (name, odd)), version=3, session_ms=600_000)
    second = groups.join(protocols=((name, metadata),), version=3, session_ms=600_000)
    assert (first.error_code, second.error_code) == (0, 0)
    if end == "leave":
        assert groups.beat("new", -1).error_code == 0
    else:
        groups.advance(60_000)
    members = {first.value.member_id, second.value.member_id}
    assert groups.shard.groups["g"].type_name == "classic"
    assert set(groups.shard.groups["g"].members) == members
    assert set(Groups(log=groups.log).shard.groups["g"].members) == members


def test_a_classic_member_that_names_a_protocol_twice_is_one_of_a_mixed_group() -> None:
    groups, _ = with_topic(migration_policy=MigrationPolicy.BIDIRECTIONAL)
    assert groups.beat("new", 0, topics=["t"]).error_code == 0
    twice = groups.join(protocols=subscription("t") * 2, version=3, session_ms=600_000)
    once = groups.join(protocols=subscription("t"), version=3, session_ms=600_000)
    assert groups.beat("new", -1).error_code == 0
    again = [
        groups.join(member=each.value.member_id, protocols=subscription("t"), session_ms=600_000)
        for each in (twice, once)
    ]
    assert [each.error_code for each in again] == [0, 0]


def test_without_a_policy_nothing_is_converted() -> None:
    groups, _, _ = upgraded(MigrationPolicy.UPGRADE)
    groups.beat("new", -1)
    assert groups.shard.groups["g"].type_name == "consumer"


def test_leave_group_removes_members_of_either_protocol() -> None:
    groups, topic = with_topic(2)
    groups.beat("a", 0, topics=["t"])
    groups.beat("b", 0, topics=["t"], instance="static")
    groups.settle()
    answers = groups.leave("a", "a", "stranger").members
    assert [each.error_code for each in answers] == [0, 0, UnknownMemberId.code]
    assert groups.beat("a", 1, topics=["t"]).error_code == UnknownMemberId.code
    assert groups.settle() == {"b": {topic: [0, 1]}}
    assert groups.leave("other", instance="static").members[0].error_code == FencedInstanceId.code
    assert groups.leave("", instance="static").members[0].error_code == 0
    group = groups.shard.registry.find_consumer("g")
    assert group is not None
    assert group.members == {}


def test_a_classic_member_may_enter_a_consumer_group_and_leave_it() -> None:
    groups, topic = with_topic()
    groups.beat("new", 0, topics=["t"])
    asked = groups.join(protocols=subscription("t"))
    assert asked.error_code == MemberIdRequired.code
    member = asked.value.member_id
    joined = groups.join(member=member, protocols=subscription("t"))
    assert joined.value.generation_id == 2
    groups.beat("new", 1, owned={topic: [0, 1, 2, 3]})
    groups.beat("new", 1, owned={topic: [0, 1]})
    assert groups.heartbeat(member, 2) == RebalanceInProgress.code
    groups.join(member=member, protocols=subscription("t"))
    assert groups.sync(member, 2).value.assignment[2:] == assigned(2, 3)[2:]
    assert groups.leave(member).members[0].error_code == 0
    assert groups.settle() == {"new": {topic: [0, 1, 2, 3]}}


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    groups, topic, old = upgraded(MigrationPolicy.UPGRADE)
    assert groups.heartbeat(old, 1) == RebalanceInProgress.code
    for _ in range(6):
        groups.advance(10_000)
        groups.beat("new", 2)
        groups.heartbeat(old, 1)
    assert groups.settle() == {"new": {topic: [0, 1, 2, 3]}}
