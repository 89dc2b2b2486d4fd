"""Races of classic groups: late members, replaced member ids, slow replication."""

from __future__ import annotations

from barnabas.core.errors import (
    FencedInstanceId,
    NotCoordinator,
    NotEnoughReplicas,
    RebalanceInProgress,
    UnknownMemberId,
)
from tests.unit.coordinator.support import Answer, Groups, generation_of


def static_pair(groups: Groups) -> tuple[str, str]:
    """Two static members, `i` and `j`, in generation 1; the first one leads."""
    first = groups.join(instance="i", session_ms=30_000)
    second = groups.join(instance="j", session_ms=30_000)
    groups.advance(6_000)
    assert generation_of(first) == generation_of(second) == 1
    return first.value.member_id, second.value.member_id


def stable_static_pair(groups: Groups) -> tuple[str, str]:
    leader, other = static_pair(groups)
    assert groups.sync(leader, 1, {leader: b"a", other: b"b"}, instance="i").error_code == 0
    assert groups.sync(other, 1, instance="j").value.assignment == b"b"
    return leader, other


# Previous members of static instances


def test_a_waiting_sync_of_a_previous_life_is_fenced() -> None:
    groups = Groups()
    _, former = static_pair(groups)
    waiting = groups.sync(former, 1, instance="j")
    assert not waiting.is_given
    groups.join(instance="j", session_ms=30_000)
    assert waiting.error_code == FencedInstanceId.code


def test_a_static_member_that_was_replaced_before_it_synced_hands_that_duty_on() -> None:
    groups = Groups()
    leader, former = static_pair(groups)
    assert groups.sync(leader, 1, {leader: b"a", former: b"b"}, instance="i").error_code == 0
    back = groups.join(instance="j", session_ms=120_000)
    assert (generation_of(back), groups.state()) == (1, "Stable")
    member = back.value.member_id
    assert groups.sync(member, 1, instance="j").value.assignment == b"b"
    for _ in range(7):
        groups.advance(10_000)
        assert groups.heartbeat(leader, 1, instance="i") == 0
        assert groups.heartbeat(member, 1, instance="j") == 0


def test_the_new_life_of_a_static_member_that_never_syncs_is_removed() -> None:
    groups = Groups()
    leader, former = static_pair(groups)
    assert groups.sync(leader, 1, {leader: b"a", former: b"b"}, instance="i").error_code == 0
    back = groups.join(instance="j", session_ms=120_000)
    for _ in range(6):
        groups.advance(9_000)
        assert groups.heartbeat(leader, 1, instance="i") == 0
    groups.advance(9_000)
    assert groups.heartbeat(leader, 1, instance="i") == RebalanceInProgress.code
    assert groups.heartbeat(back.value.member_id, 1, instance="j") == UnknownMemberId.code


def test_a_static_member_whose_return_cannot_be_written_is_who_it_was() -> None:
    groups = Groups()
    _, former = stable_static_pair(groups)
    groups.log.error = NotEnoughReplicas("too few")
    assert groups.join(instance="j", session_ms=30_000).error_code != 0
    groups.log.error = None
    assert groups.heartbeat(former, 1, instance="j") == 0
    assert groups.sync(former, 1, instance="j").value.assignment == b"b"


# Late members


def test_static_members_that_are_late_stay_in_the_group() -> None:
    groups = Groups()
    leader, late = stable_static_pair(groups)
    groups.advance(20_000)
    assert groups.heartbeat(late, 1, instance="j") == 0
    again = groups.join(member=leader, instance="i", session_ms=30_000, rebalance_ms=60_000)
    for _ in range(3):
        groups.advance(20_000)
        groups.heartbeat(late, 1, instance="j")
    assert generation_of(again) == 2
    assert [each.group_instance_id for each in again.value.members] == ["i", "j"]
    assert groups.join(member=late, instance="j", session_ms=30_000).value.generation_id == 2


def test_a_member_that_waits_for_the_others_need_not_send_heartbeats() -> None:
    groups = Groups()
    (leader, late), _ = groups.stable_group(2, session_ms=10_000, rebalance_ms=60_000)
    waiting = groups.join(member=leader, session_ms=10_000, rebalance_ms=60_000)
    groups.heartbeat(late, 1)
    for _ in range(6):
        groups.advance(9_000)
        groups.heartbeat(late, 1)
    assert not waiting.is_given
    groups.advance(6_000)
    assert (waiting.error_code, waiting.value.generation_id) == (0, 2)
    assert [each.member_id for each in waiting.value.members] == [leader]


def test_a_member_that_waits_for_its_assignment_need_not_send_heartbeats() -> None:
    groups = Groups()
    entered = [groups.enter(session_ms=10_000, rebalance_ms=60_000) for _ in range(2)]
    groups.advance(9_000)
    leader, other = (member for member, _ in entered)
    waiting = groups.sync(other, 1)
    assert groups.heartbeat(leader, 1) == 0
    for _ in range(4):
        groups.advance(9_000)
        assert groups.heartbeat(leader, 1) == 0
    assert not waiting.is_given
    groups.sync(leader, 1, {leader: b"a", other: b"b"})
    assert waiting.value.assignment == b"b"
    assert groups.heartbeat(other, 1) == 0


def test_who_leaves_while_it_waits_is_answered_though_that_cannot_be_written() -> None:
    groups = Groups()
    (leader, other), _ = groups.stable_group(2)
    waiting = groups.join(member=leader)
    assert not waiting.is_given
    groups.log.error = NotEnoughReplicas("too few")
    groups.leave(leader, other)
    assert waiting.error_code == UnknownMemberId.code


def test_a_request_of_a_member_that_asks_again_is_answered_too() -> None:
    groups = Groups()
    (leader, other), _ = groups.stable_group(2)
    first, again = groups.join(member=leader), groups.join(member=leader)
    assert first.error_code == RebalanceInProgress.code
    assert not again.is_given
    groups.join(member=other)
    generation = generation_of(again)
    first, again = groups.sync(other, generation), groups.sync(other, generation)
    assert first.error_code == RebalanceInProgress.code
    assert groups.sync(leader, generation, {leader: b"a", other: b"b"}).error_code == 0
    assert again.value.assignment == b"b"


# Slow replication


def slow_sync(groups: Groups) -> tuple[str, Answer]:
    """A leader in generation 1 whose assignment is written, and not yet replicated."""
    member, _ = groups.enter()
    groups.advance(3_000)
    groups.log.is_replicated = False
    return member, groups.sync(member, 1, {member: b"of generation 1"})


def test_an_assignment_that_comes_too_late_is_not_handed_out() -> None:
    groups = Groups()
    leader, synced = slow_sync(groups)
    other: str = groups.shard.registry.new_member_id("client")
    groups.shard.groups["g"].pending_join[other] = groups.account.claim(1)  # type: ignore[union-attr]
    joins = [groups.join(member=other), groups.join(member=leader)]
    assert synced.error_code == RebalanceInProgress.code
    assert [each.value.generation_id for each in joins] == [2, 2]
    groups.log.replicate()
    assert groups.state() == "CompletingRebalance"
    waiting = groups.sync(other, 2)
    assert not waiting.is_given


def test_an_assignment_that_is_not_replicated_in_time_makes_the_group_assign_again() -> None:
    groups = Groups()
    leader, synced = slow_sync(groups)
    groups.log.time_out()
    assert synced.error_code != 0
    groups.log.is_replicated = True
    groups.log.replicate()
    assert groups.state() == "PreparingRebalance"
    assert groups.join(member=leader).value.generation_id == 2


# State of the members of a group


def test_a_group_without_members_has_no_leader() -> None:
    groups = Groups()
    (member,), _ = groups.stable_group(1)
    groups.leave(member)
    for each in (groups, Groups(log=groups.log)):
        group = each.shard.registry.find_classic("g")
        assert group is not None
        assert (group.state.value, group.leader_id) == ("Empty", None)


def test_members_may_change_their_protocols_together() -> None:
    groups = Groups()
    (leader, other), _ = groups.stable_group(2, protocols=(("range", b""),))
    better = (("sticky", b""), ("range", b""))
    joins = [groups.join(member=each, protocols=better) for each in (leader, other)]
    assert [each.value.protocol_name for each in joins] == ["sticky", "sticky"]


def test_a_static_member_that_comes_back_with_another_protocol_makes_the_group_assign_again() -> None:
    groups = Groups()
    both, one = (("range", b""), ("sticky", b"")), (("sticky", b""),)
    first = groups.join(instance="i", protocols=both)
    groups.advance(3_000)
    groups.sync(first.value.member_id, 1, {}, instance="i")
    back = groups.join(instance="i", protocols=one)
    assert (back.value.generation_id, back.value.protocol_name) == (2, "sticky")
    assert not back.value.skip_assignment


# The life of a coordinator


def test_members_that_died_with_their_coordinator_are_removed_by_the_next() -> None:
    groups = Groups()
    groups.stable_group(1, session_ms=10_000)
    after = Groups(log=groups.log)
    after.advance(9_999)
    assert after.state() == "Stable"
    after.advance(1)
    assert after.state() == "Empty"


def test_who_waits_for_an_assignment_is_sent_to_the_new_coordinator() -> None:
    groups = Groups()
    entered = [groups.enter() for _ in range(2)]
    groups.advance(9_000)
    waiting = groups.sync(entered[1][0], 1)
    groups.runtime.resigned(0)
    assert waiting.error_code == NotCoordinator.code
