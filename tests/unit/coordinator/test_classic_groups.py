"""Classic groups as transcripts of requests and responses."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.state.classic_group import TRANSITIONS, ClassicGroup, GroupState
from barnabas.coordinator.group.state.record_schemas import GroupMetadataValue, MemberMetadata
from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    NotEnoughReplicas,
    RebalanceInProgress,
    UnknownMemberId,
)
from tests.unit.coordinator.support import Answer, Groups, MemoryLog, generation_of

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
CHANGES = {
    *((former, PREPARING) for former in (EMPTY, COMPLETING, STABLE)),
    (PREPARING, EMPTY),
    (PREPARING, COMPLETING),
    (COMPLETING, STABLE),
    *((former, DEAD) for former in GroupState),
}


@pytest.mark.parametrize("former", GroupState)
@pytest.mark.parametrize("later", GroupState)
def test_the_changes_of_a_group_are_apache_kafkas(former: GroupState, later: GroupState) -> None:
    assert TRANSITIONS.allows(former, later) == ((former, later) in CHANGES)


def test_a_lone_member_leads_after_the_initial_delay() -> None:
    groups = Groups(initial_rebalance_delay_ms=3_000)
    first = groups.join()
    assert first.error_code == MemberIdRequired.code
    member = first.value.member_id
    assert member.startswith("client-")
    joined = groups.join(member=member)
    assert not joined.is_given
    groups.advance(2_999)
    assert not joined.is_given
    groups.advance(1)
    answer = joined.value
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, member)
    assert [each.member_id for each in answer.members] == [member]
    assert groups.state() == "CompletingRebalance"
    synced = groups.sync(member, 1, {member: b"all"})
    assert (synced.error_code, synced.value.assignment) == (0, b"all")
    assert groups.state() == "Stable"
    assert groups.heartbeat(member, 1) == 0


def test_the_initial_delay_grows_while_members_come_but_not_beyond_the_rebalance_timeout() -> None:
    groups = Groups(initial_rebalance_delay_ms=3_000)
    _, first = groups.enter(rebalance_ms=7_000)
    groups.advance(2_000)
    _, second = groups.enter(rebalance_ms=7_000)
    groups.advance(1_000)
    assert not first.is_given
    groups.advance(3_000)
    assert first.value.generation_id == second.value.generation_id == 1
    assert len(first.value.members) == 2
    assert second.value.members == []


def test_members_that_come_later_make_everybody_join_again() -> None:
    groups = Groups()
    (member,), generation = groups.stable_group(1)
    late, late_answer = groups.enter()
    assert groups.state() == "PreparingRebalance"
    assert not late_answer.is_given
    assert groups.heartbeat(member, generation) == RebalanceInProgress.code
    rejoined = groups.join(member=member)
    assert generation_of(rejoined) == generation_of(late_answer) == generation + 1
    assert rejoined.value.leader == member
    assert {each.member_id for each in rejoined.value.members} == {member, late}
    waiting = groups.sync(late, generation + 1)
    assert not waiting.is_given
    groups.sync(member, generation + 1, {member: b"a", late: b"b"})
    assert waiting.value.assignment == b"b"


def test_sync_group_while_the_group_prepares_a_rebalance_sends_the_member_back_to_join() -> None:
    groups = Groups()
    (member,), generation = groups.stable_group(1)
    groups.enter()
    assert groups.state() == "PreparingRebalance"
    assert groups.sync(member, generation).error_code == RebalanceInProgress.code


def test_who_does_not_rejoin_in_time_is_removed() -> None:
    groups = Groups()
    (first, second), generation = groups.stable_group(2, rebalance_ms=20_000, session_ms=60_000)
    rejoined = groups.join(member=first, protocols=(("range", b"changed"),), rebalance_ms=20_000)
    assert not rejoined.is_given
    groups.advance(20_000)
    assert generation_of(rejoined) == generation + 1
    assert [each.member_id for each in rejoined.value.members] == [first]
    assert groups.heartbeat(second, generation) == UnknownMemberId.code


def test_a_silent_member_expires_and_the_others_rebalance() -> None:
    groups = Groups()
    (first, second), generation = groups.stable_group(2, session_ms=10_000)
    groups.advance(6_000)
    assert groups.heartbeat(first, generation) == 0
    groups.advance(4_000)
    assert groups.heartbeat(first, generation) == RebalanceInProgress.code
    assert groups.heartbeat(second, generation) == UnknownMemberId.code
    alone = groups.join(member=first)
    assert [each.member_id for each in alone.value.members] == [first]


def test_a_member_that_waits_for_us_does_not_expire() -> None:
    groups = Groups()
    (first, _second), _ = groups.stable_group(2, session_ms=60_000, rebalance_ms=50_000)
    waiting = groups.join(member=first, session_ms=6_000, rebalance_ms=50_000)
    groups.advance(49_000)
    assert not waiting.is_given
    groups.advance(1_000)
    assert waiting.error_code == 0


def test_a_new_member_that_is_never_let_in_expires_after_five_minutes() -> None:
    groups = Groups()
    (member,), generation = groups.stable_group(1, rebalance_ms=600_000, session_ms=10_000)
    _, late = groups.enter(rebalance_ms=600_000)
    for _ in range(300 // 5):
        assert not late.is_given
        assert groups.heartbeat(member, generation) == RebalanceInProgress.code
        groups.advance(5_000)
    assert late.error_code == UnknownMemberId.code


def test_an_id_that_is_given_out_and_never_used_is_forgotten() -> None:
    groups = Groups()
    member = groups.join(session_ms=6_000).value.member_id
    groups.advance(6_000)
    assert groups.join(member=member).error_code == UnknownMemberId.code


def test_members_that_never_sync_are_removed() -> None:
    groups = Groups()
    first, first_answer = groups.enter(rebalance_ms=30_000, session_ms=40_000)
    second, _ = groups.enter(rebalance_ms=30_000, session_ms=40_000)
    groups.advance(9_000)
    waiting = groups.sync(second, 1)
    groups.advance(30_000)
    assert waiting.error_code == RebalanceInProgress.code
    assert groups.heartbeat(first, 1) == UnknownMemberId.code
    assert first_answer.value.leader == first
    assert groups.join(member=second).value.leader == second


def test_leaving_is_at_once() -> None:
    groups = Groups()
    (first, second), generation = groups.stable_group(2)
    answer = groups.leave(second, "nobody")
    assert [each.error_code for each in answer.members] == [0, UnknownMemberId.code]
    assert groups.heartbeat(first, generation) == RebalanceInProgress.code
    groups.leave(first)
    assert groups.state() == "Empty"
    assert groups.heartbeat(first, generation) == UnknownMemberId.code


def test_the_protocol_that_all_support_and_most_prefer_is_chosen() -> None:
    groups = Groups()
    preferences = ["abc", "bca", "bac", "cba"]
    answers = [
        groups.enter(protocols=tuple((name, name.encode()) for name in order))[1] for order in preferences
    ]
    groups.advance(20_000)
    assert {answer.value.protocol_name for answer in answers} == {"b"}
    assert {each.metadata for each in answers[0].value.members} == {b"b"}


def test_a_member_with_nothing_in_common_is_refused() -> None:
    groups = Groups()
    groups.stable_group(1)
    assert groups.join(protocols=(("other", b""),)).error_code == InconsistentGroupProtocol.code
    assert groups.join(protocol_type="connect").error_code == InconsistentGroupProtocol.code
    assert groups.join("new", protocols=()).error_code == InconsistentGroupProtocol.code
    assert groups.state("new") == "Dead"


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    groups = Groups(initial_rebalance_delay_ms=0)
    twice = groups.join(protocols=(("range", b"first"), ("range", b"second")), version=3)
    groups.advance(1)
    assert twice.error_code == 0
    assert [each.metadata for each in twice.value.members] == [b"first"]
    other = groups.join(version=3)
    rejoined = groups.join(
        member=twice.value.member_id, protocols=(("x", b""), ("range", b""), ("x", b"")), version=3
    )
    assert (other.error_code, rejoined.error_code) == (0, 0)
    groups.leave(twice.value.member_id)
    last = groups.join(member=other.value.member_id, version=3)
    assert (last.error_code, last.value.protocol_name) == (0, "range")


def test_requests_of_another_generation_or_member_are_refused() -> None:
    groups = Groups()
    (member,), generation = groups.stable_group(1)
    assert groups.heartbeat(member, generation - 1) == IllegalGeneration.code
    assert groups.sync(member, generation + 1).error_code == IllegalGeneration.code
    assert groups.sync("nobody", generation).error_code == UnknownMemberId.code
    assert groups.heartbeat("nobody", generation) == UnknownMemberId.code
    assert groups.commit(1, member=member, generation=generation - 1) == IllegalGeneration.code
    assert groups.commit(1, member="nobody", generation=generation) == UnknownMemberId.code
    assert groups.commit(1) == UnknownMemberId.code
    assert groups.commit(1, member=member, generation=generation) == 0


def test_commits_wait_for_the_assignment() -> None:
    groups = Groups()
    member, _ = groups.enter()
    groups.advance(3_000)
    assert groups.commit(1, member=member, generation=1) == RebalanceInProgress.code


def test_a_repeated_join_gets_the_same_answer() -> None:
    groups = Groups()
    (leader, follower), generation = groups.stable_group(2)
    again = groups.join(member=follower)
    assert (generation_of(again), again.value.members) == (generation, [])
    assert groups.state() == "Stable"
    groups.join(member=leader)
    assert groups.state() == "PreparingRebalance"


def test_a_group_has_a_size_limit() -> None:
    groups = Groups(max_size=2)
    groups.stable_group(2)
    assert groups.join().error_code == GroupMaxSizeReached.code


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_the_session_timeout_is_bounded(session_ms: int) -> None:
    assert Groups().join(session_ms=session_ms).error_code == InvalidSessionTimeout.code


def test_a_group_needs_an_id() -> None:
    groups = Groups()
    assert groups.join(group="").error_code == InvalidGroupId.code
    assert groups.heartbeat("m", 1, group="") == InvalidGroupId.code


def test_old_members_join_in_one_step() -> None:
    groups = Groups()
    joined = groups.join(version=3)
    assert not joined.is_given
    groups.advance(3_000)
    assert joined.value.generation_id == 1


# Static members


def test_a_static_member_that_comes_back_changes_nothing_for_the_others() -> None:
    groups = Groups()
    joined = groups.join(instance="i")
    groups.advance(3_000)
    former = joined.value.member_id
    groups.sync(former, 1, {former: b"mine"}, instance="i")
    back = groups.join(instance="i")
    assert (generation_of(back), back.value.skip_assignment) == (1, True)
    member = back.value.member_id
    assert member != former
    assert back.value.leader == member
    assert groups.state() == "Stable"
    assert groups.sync(member, 1, instance="i").value.assignment == b"mine"
    assert groups.heartbeat(former, 1, instance="i") == FencedInstanceId.code
    assert groups.heartbeat(member, 1, instance="i") == 0


def test_an_older_leader_is_told_of_the_new_leader_so_that_it_does_not_assign() -> None:
    groups = Groups()
    joined = groups.join(instance="i", version=5)
    groups.advance(3_000)
    former = joined.value.member_id
    groups.sync(former, 1, {former: b"mine"}, instance="i")
    back = groups.join(instance="i", version=5)
    assert (back.value.leader, back.value.members) == (former, [])


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    groups = Groups()
    joined = groups.join(instance="i", session_ms=30_000)
    groups.advance(3_000)
    member = joined.value.member_id
    groups.sync(member, 1, {member: b""}, instance="i")
    groups.advance(29_999)
    assert groups.state() == "Stable"
    groups.advance(1)
    assert groups.state() == "Empty"


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    groups = Groups()
    joined = groups.join(instance="i")
    groups.advance(3_000)
    groups.sync(joined.value.member_id, 1, {}, instance="i")
    assert groups.leave("", instance="j").members[0].error_code == UnknownMemberId.code
    assert groups.leave("", instance="i").members[0].error_code == 0
    assert groups.state() == "Empty"


@pytest.mark.parametrize("rebalance_ms", [-(1 << 31), -2, 0])
def test_a_static_member_left_alone_is_waited_for_without_spinning(rebalance_ms: int) -> None:
    groups = Groups(initial_rebalance_delay_ms=0)
    leader = groups.join(instance="leader")
    groups.advance(1)
    leader_id, generation = leader.value.member_id, generation_of(leader)
    assert groups.sync(leader_id, generation, {leader_id: b""}, instance="leader").error_code == 0
    static = groups.join(instance="static", rebalance_ms=rebalance_ms)
    again = groups.join(member=leader_id, instance="leader")
    assert generation_of(again) == generation_of(static) == generation + 1
    static_id = static.value.member_id
    synced = groups.sync(static_id, generation + 1, instance="static")
    groups.sync(leader_id, generation + 1, {static_id: b""}, instance="leader")
    assert synced.error_code == 0
    groups.leave(leader_id, instance="leader")
    assert groups.state() == "PreparingRebalance"
    ran = 0
    for _ in range(9_000):
        groups.clock.advance(1)
        ran += groups.timer.advance()
    assert ran <= 20
    groups.advance(2_000)
    assert groups.state() == "Empty"


def test_a_negative_rebalance_timeout_in_a_record_counts_as_none() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m",
        members=[MemberMetadata(member_id="m", session_timeout=10_000, rebalance_timeout=-(1 << 31))],
    )
    assert ClassicGroup.from_record("g", value).rebalance_timeout_ms == 0


def test_a_duplicate_instance_fences_the_one_that_waits() -> None:
    groups = Groups()
    first = groups.join(instance="i")
    second = groups.join(instance="i")
    assert first.error_code == FencedInstanceId.code
    groups.advance(6_000)
    assert second.value.generation_id == 1


# Storage


def test_no_member_hears_that_a_group_is_stable_before_that_is_replicated() -> None:
    groups = Groups()
    member, _ = groups.enter()
    groups.advance(3_000)
    groups.log.is_replicated = False
    synced = groups.sync(member, 1, {member: b"a"})
    described = Answer()
    groups.coordinator.run("g", lambda shard: shard.describe("g"), described, described)
    assert not synced.is_given
    assert not described.is_given
    groups.log.replicate()
    assert synced.value.assignment == b"a"
    assert described.value.group_state == "Stable"


def test_an_assignment_that_cannot_be_stored_is_computed_again() -> None:
    groups = Groups()
    member, _ = groups.enter()
    groups.advance(3_000)
    groups.log.error = NotEnoughReplicas("too few")
    assert groups.sync(member, 1, {member: b"a"}).error_code == CoordinatorNotAvailable.code
    groups.log.error = None
    again = groups.join(member=member)
    assert generation_of(again) == 2


def test_a_new_group_that_cannot_be_stored_does_not_exist() -> None:
    groups = Groups()
    groups.log.error = NotEnoughReplicas("too few")
    assert groups.join().error_code == CoordinatorNotAvailable.code
    assert groups.shard.groups == {}


def test_a_group_survives_its_coordinator() -> None:
    groups = Groups()
    members, generation = groups.stable_group(3)
    after = Groups(log=groups.log)
    assert after.state() == "Stable"
    assert [after.heartbeat(member, generation) for member in members] == [0, 0, 0]
    assert after.sync(members[1], generation).value.assignment == f"for {members[1]}".encode()
    after.advance(10_000)
    assert after.state() == "Empty"


def test_an_unloaded_coordinator_sends_everybody_away() -> None:
    groups = Groups()
    _, waiting = groups.enter()
    groups.runtime.resigned(0)
    assert waiting.error_code == NotCoordinator.code
    assert groups.heartbeat("m", 1) == NotCoordinator.code
    assert groups.fetch() == -1000 * NotCoordinator.code
    assert groups.timer.pending == 0


def test_a_coordinator_of_the_past_cannot_write() -> None:
    groups = Groups()
    assert groups.commit(1) == 0
    groups.log.leader_epoch = 1
    assert groups.commit(2) == NotCoordinator.code
    assert groups.fetch() == 1
    groups.runtime.resigned(0, leader_epoch=-1)
    assert groups.fetch() == 1


def test_while_loading_nothing_is_answered_wrongly() -> None:
    log = MemoryLog()
    before = Groups(log=log)
    assert before.commit(42) == 0
    groups = Groups(log=log)
    groups.runtime.elected(0, 1)
    assert groups.fetch() == -1000 * CoordinatorLoadInProgress.code
    assert groups.heartbeat("m", 1) == 0
    groups.scheduler.run_due()
    assert groups.fetch() == 42
