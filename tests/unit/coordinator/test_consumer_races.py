"""Races of consumer groups: failed writes, members that expire during a conversion, missing metadata."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.group.state.settings import MigrationPolicy
from barnabas.core.errors import (
    GroupIdNotFound,
    GroupMaxSizeReached,
    NotEnoughReplicas,
    RebalanceInProgress,
    UnknownMemberId,
)
from tests.unit.coordinator.support import Groups
from tests.unit.coordinator.test_consumer_groups import assigned, subscription, upgraded

UPGRADE = MigrationPolicy.UPGRADE


# Conversions


def test_a_classic_member_that_dies_during_the_upgrade_is_removed() -> None:
    groups, topic, old = upgraded(UPGRADE)
    for _ in range(5):
        groups.advance(10_000)
        assert groups.beat("new", 2).error_code == 0
    groups.advance(10_000)
    assert groups.settle() == {"new": {topic: [0, 1, 2, 3]}}
    assert groups.heartbeat(old, 1) == UnknownMemberId.code


def test_an_upgrade_that_cannot_be_written_leaves_a_group_that_comes_together() -> None:
    groups = Groups(migration_policy=UPGRADE)
    groups.topics.put("t", 4)
    member, joined = groups.enter(protocols=subscription("t"))
    groups.log.error = NotEnoughReplicas("too few")
    assert groups.beat("new", 0, topics=["t"]).error_code != 0
    groups.log.error = None
    assert not joined.is_given
    groups.advance(3_000)
    assert (joined.error_code, joined.value.generation_id) == (0, 1)
    assert groups.sync(member, 1, {member: assigned(0)}).error_code == 0


def test_an_upgrade_that_is_refused_leaves_a_group_that_comes_together() -> None:
    groups = Groups(migration_policy=UPGRADE, consumer_max_size=1)
    groups.topics.put("t", 4)
    member, joined = groups.enter(protocols=subscription("t"))
    assert groups.beat("new", 0, topics=["t"]).error_code == GroupMaxSizeReached.code
    groups.advance(3_000)
    assert (joined.error_code, joined.value.generation_id) == (0, 1)
    assert groups.sync(member, 1, {member: assigned(0)}).error_code == 0


def test_members_that_wait_when_their_group_is_upgraded_are_told() -> None:
    groups = Groups(migration_policy=UPGRADE)
    groups.topics.put("t", 4)
    member, joined = groups.enter(protocols=subscription("t"), session_ms=60_000)
    assert groups.beat("new", 0, topics=["t"]).error_code == 0
    assert joined.error_code == RebalanceInProgress.code
    groups.advance(10_000)
    assert groups.shard.groups["g"].type_name == "consumer"
    again = groups.join(member=member, protocols=subscription("t"), session_ms=60_000)
    assert again.error_code == 0
    assert groups.sync(member, again.value.generation_id).error_code == 0


def test_a_classic_member_that_asked_for_its_assignment_stays() -> None:
    groups = Groups()
    groups.topics.put("t", 4)
    groups.beat("new", 0, topics=["t"], instance="i")
    asked = groups.join(protocols=subscription("t"), session_ms=30_000, rebalance_ms=40_000)
    member = asked.value.member_id
    how: dict[str, Any] = {"protocols": subscription("t"), "session_ms": 30_000, "rebalance_ms": 40_000}
    groups.join(member=member, **how)
    groups.settle()
    # Each heartbeat that is answered so gives it a time to join again, which ends when it does.
    while groups.heartbeat(member, 2) == RebalanceInProgress.code:
        groups.join(member=member, **how)
        assert groups.sync(member, 2).error_code == 0
    for _ in range(5):
        groups.advance(10_000)
        assert groups.beat("new", 2, instance="i").error_code == 0
        assert groups.heartbeat(member, 2) == 0


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_without_a_policy_a_group_with_members_is_not_upgraded(policy: MigrationPolicy) -> None:
    groups = Groups(migration_policy=policy)
    groups.topics.put("t", 4)
    member, _ = groups.enter(protocols=subscription("t"))
    groups.advance(3_000)
    assert groups.sync(member, 1, {member: assigned(0, 1, 2, 3)}).error_code == 0
    assert groups.beat("new", 0, topics=["t"]).error_code == GroupIdNotFound.code
    assert groups.heartbeat(member, 1) == 0


# Writes that fail


def test_a_change_of_topics_that_could_not_be_written_is_noticed_again() -> None:
    groups = Groups()
    topic = groups.topics.put("t", 2)
    groups.beat("m", 0, topics=["t"])
    groups.topics.put("t", 4)
    groups.log.error = NotEnoughReplicas("too few")
    assert groups.beat("m", 1, owned={topic: [0, 1]}).error_code != 0
    groups.log.error = None
    assert groups.settle() == {"m": {topic: [0, 1, 2, 3]}}


def test_a_regular_expression_whose_topics_could_not_be_written_is_matched_again() -> None:
    groups = Groups()
    first = groups.topics.put("log-1", 1)
    groups.beat("m", 0, topics=[], regex="log-.*")
    second = groups.topics.put("log-2", 1)
    groups.advance(20_000)
    groups.log.error = NotEnoughReplicas("too few")
    assert groups.beat("m", 1, owned={first: [0]}).error_code != 0
    groups.log.error = None
    assert groups.settle() == {"m": {first: [0], second: [0]}}


# Metadata


def test_a_coordinator_that_has_heard_of_no_topic_takes_nothing_away() -> None:
    groups = Groups()
    topic = groups.topics.put("t", 2)
    groups.beat("m", 0, topics=["t"])
    after = Groups(log=groups.log)
    answer = after.beat("m", 1, owned={topic: [0, 1]})
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)
    after.topics._topics["t"] = after.topics.Topic("t", topic, 4)
    after.topics.generation += 1
    assert after.settle() == {"m": {topic: [0, 1, 2, 3]}}


def test_a_regular_expression_is_not_matched_more_often_than_it_may() -> None:
    groups = Groups()
    first = groups.topics.put("log-1", 1)
    groups.beat("m", 0, topics=[], regex="log-.*")
    second = groups.topics.put("log-2", 1)
    groups.advance(9_000)
    assert groups.settle() == {"m": {first: [0]}}
    groups.advance(1_000)
    assert groups.settle() == {"m": {first: [0], second: [0]}}


def test_an_unused_expression_is_forgotten() -> None:
    groups = Groups()
    groups.topics.put("log-1", 1)
    groups.beat("m", 0, topics=[], regex="log-.*")
    assert groups.beat("m", 1, regex="log-1").error_code == 0
    for each in (groups, Groups(log=groups.log)):
        group = each.shard.registry.find_consumer("g")
        assert group is not None
        assert group.regexes.keys() == {"log-1"}
        assert group.regexes_seen.keys() <= {"log-1"}


# Offsets


def test_offsets_of_topics_that_a_group_reads_do_not_expire() -> None:
    groups = Groups(offsets_retention_ms=20_000, offsets_retention_check_interval_ms=1_000)
    for name in ("log-1", "named", "left"):
        groups.topics.put(name, 1)
    groups.beat("m", 0, topics=["named"], regex="log-.*")
    for name in ("log-1", "named", "left"):
        assert groups.commit(1, member="m", generation=1, topic=name) == 0
    groups.advance(30_000)
    assert [groups.fetch(topic=name) for name in ("log-1", "named", "left")] == [1, 1, -1]


# Revocation


def test_the_next_coordinator_waits_no_longer_for_a_revocation() -> None:
    groups = Groups()
    topic = groups.topics.put("t", 4)
    groups.beat("m", 0, topics=["t"], rebalance_ms=20_000)
    groups.beat("n", 0, topics=["t"])
    groups.beat("m", 1, owned={topic: [0, 1, 2, 3]})
    after = Groups(log=groups.log, topics=groups.topics)
    for _ in range(2):
        after.advance(9_000)
        assert after.beat("m", 1, owned={topic: [0, 1, 2, 3]}).error_code == 0
        assert after.beat("n", 2).error_code == 0
    after.advance(2_000)
    assert after.beat("m", 1, owned={topic: [0, 1, 2, 3]}).error_code == UnknownMemberId.code
    assert after.settle() == {"n": {topic: [0, 1, 2, 3]}}


def test_a_static_member_that_goes_for_a_while_frees_what_it_was_to_give_up() -> None:
    groups = Groups()
    topic = groups.topics.put("t", 4)
    groups.beat("m", 0, topics=["t"], instance="i")
    groups.beat("n", 0, topics=["t"])
    groups.beat("m", 1, owned={topic: [0, 1, 2, 3]}, instance="i")
    assert groups.beat("m", -2, instance="i").error_code == 0
    answer = groups.beat("n", 2)
    assert answer.assignment is not None
    assert [each.partitions for each in answer.assignment.topic_partitions] == [[2, 3]]
