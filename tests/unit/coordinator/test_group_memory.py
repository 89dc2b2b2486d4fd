"""Memory limits of group members per connection and principal, and the release of their memory."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from barnabas.coordinator.group.state.classic_group import ClassicGroup
from barnabas.coordinator.group.state.group_memory import MEMBER_BYTES, PENDING_BYTES
from barnabas.coordinator.group.state.settings import MigrationPolicy
from barnabas.core.bounds.kept_memory import MemoryLimits, MemoryOwner
from barnabas.core.errors import (
    GroupMaxSizeReached,
    MemberIdRequired,
    MessageTooLarge,
    NotEnoughReplicas,
)
from barnabas.core.limits import JOIN_METADATA_BYTES_MAX, SUBSCRIPTIONS_DECODED_BYTES_MAX
from tests.unit.coordinator.support import OWNER, Groups
from tests.unit.coordinator.test_consumer_groups import subscription

LIMITS = MemoryLimits(10 * MEMBER_BYTES, 20 * MEMBER_BYTES, 100 * MEMBER_BYTES)


@pytest.fixture(autouse=True)
def without_collector() -> Any:
    """Memory is given back by reference counts alone: no cycle keeps a member."""
    gc.disable()
    yield
    gc.enable()


def limited(**settings: Any) -> Groups:
    groups = Groups(initial_rebalance_delay_ms=0, **settings)
    groups.account.limits = LIMITS
    return groups


def ask_as(groups: Groups, principal: str, connection: str) -> None:
    groups.broker.owner = MemoryOwner(principal, connection)


def test_member_ids_that_are_given_out_are_bounded_and_expire_with_their_memory() -> None:
    groups = limited()
    room = LIMITS.connection_bytes_max // PENDING_BYTES
    codes = [groups.join(client="x" * 32_000).error_code for _ in range(room + 3)]
    assert codes == [MemberIdRequired.code] * room + [GroupMaxSizeReached.code] * 3
    assert groups.account.kept_for(OWNER.principal) == room * PENDING_BYTES
    ask_as(groups, OWNER.principal, "another connection")
    assert groups.join().error_code == MemberIdRequired.code
    groups.advance(10_001)
    assert groups.account.kept_bytes == 0


def test_a_principal_with_many_connections_leaves_room_for_others() -> None:
    groups = limited()
    for connection in range(30):
        ask_as(groups, "greedy", str(connection))
        groups.join(f"g{connection}", protocols=(("range", bytes(3 * MEMBER_BYTES)),), version=3)
    assert groups.account.kept_for("greedy") <= LIMITS.principal_bytes_max
    ask_as(groups, "modest", "1")
    answer = groups.join("modest", version=3)
    groups.advance(1)
    assert answer.error_code == 0


def test_metadata_that_no_log_would_take_is_refused_before_it_is_kept() -> None:
    groups = Groups()
    answer = groups.join(protocols=(("range", bytes(JOIN_METADATA_BYTES_MAX)),), version=3)
    assert answer.error_code == MessageTooLarge.code
    assert groups.account.kept_bytes == 0
    assert "g" not in groups.shard.groups


@pytest.mark.parametrize("end", ["leave", "expire", "late", "unload"])
def test_a_classic_member_takes_its_memory_along(end: str) -> None:
    groups = limited()
    members, generation = groups.stable_group(2, protocols=(("range", bytes(100)),))
    kept_bytes = groups.account.kept_bytes
    assert kept_bytes >= 2 * (MEMBER_BYTES + 100)
    match end:
        case "leave":
            groups.leave(members[1])
        case "expire":
            groups.advance(9_000)
            groups.heartbeat(members[0], generation)
            groups.advance(9_000)
            groups.heartbeat(members[0], generation)
        case "late":
            groups.join(member=members[0], protocols=(("range", bytes(101)),))
            groups.advance(60_001)
        case "unload":
            groups.runtime.resigned(0)
            assert groups.account.kept_bytes == 0
            return
    assert groups.account.kept_bytes <= kept_bytes // 2 + 200
    groups.advance(200_000)
    assert groups.account.kept_bytes == 0


def test_an_assignment_is_kept_with_its_member() -> None:
    groups = limited()
    answer = groups.join(version=3)
    groups.advance(1)
    member: str = answer.value.member_id
    big = bytes(2 * MEMBER_BYTES)
    assert groups.sync(member, 1, {member: big}).error_code == 0
    assert groups.account.kept_bytes >= MEMBER_BYTES + len(big)
    ask_as(groups, "other", "1")
    answer = groups.join("h", version=3)
    groups.advance(1)
    member = answer.value.member_id
    too_big = bytes(LIMITS.connection_bytes_max)
    assert groups.sync(member, 1, {member: too_big}, group="h").error_code == GroupMaxSizeReached.code


def test_a_static_member_that_comes_back_a_hundred_times_is_kept_once() -> None:
    groups = limited()
    answer = groups.join(instance="i")
    groups.advance(1)
    member: str = answer.value.member_id
    assert groups.sync(member, 1, {member: b""}, instance="i").error_code == 0
    before = groups.account.kept_bytes
    groups.log.error = NotEnoughReplicas("too few")
    for _ in range(50):
        groups.join(instance="i")
    assert groups.account.kept_bytes == before
    groups.log.error = None
    for _ in range(50):
        assert groups.join(instance="i").error_code == 0
    assert groups.account.kept_bytes == before


def test_members_of_consumer_groups_are_bounded_and_take_their_memory_along() -> None:
    groups = limited()
    groups.topics.put("t", 1)
    codes = [groups.beat(f"m{number}", 0, topics=["t"]).error_code for number in range(12)]
    kept = codes.count(0)
    assert 0 < kept < 12
    assert set(codes[kept:]) == {GroupMaxSizeReached.code}
    for number in range(kept):
        assert groups.beat(f"m{number}", -1).error_code == 0
    assert groups.account.kept_bytes == 0
    assert groups.beat("again", 0, topics=["t"]).error_code == 0


def test_a_member_that_could_not_be_written_leaves_nothing() -> None:
    groups = limited()
    groups.topics.put("t", 1)
    groups.log.error = NotEnoughReplicas("too few")
    for number in range(100):
        groups.beat(f"m{number}", 0, topics=["t"])
    groups.log.error = None  # an error that is kept keeps the frames that it went through
    assert groups.account.kept_bytes == 0


def test_a_longer_subscription_takes_more() -> None:
    groups = limited()
    groups.topics.put("t", 1)
    assert groups.beat("m", 0, topics=["t"]).error_code == 0
    before = groups.account.kept_bytes
    epoch = groups.shard.groups["g"].members["m"].member_epoch  # type: ignore[union-attr]
    answer = groups.beat("m", epoch, topics=[f"topic-{each}" for each in range(100)], owned={})
    assert answer.error_code == 0
    assert groups.account.kept_bytes > before + 10_000
    answer = groups.beat("m", answer.member_epoch, topics=["x" * 40_000], owned={})
    assert answer.error_code == GroupMaxSizeReached.code


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_are_read_back_count_for_the_broker(protocol: str) -> None:
    groups = limited()
    if protocol == "classic":
        groups.stable_group(3)
    else:
        groups.topics.put("t", 1)
        for number in range(3):
            groups.beat(f"m{number}", 0, topics=["t"])
    again = Groups(log=groups.log)
    assert again.account.kept_bytes >= 3 * MEMBER_BYTES
    assert again.account.kept_for(OWNER.principal) == 0
    again.advance(3_600_000)
    assert again.account.kept_bytes == 0


def test_memory_goes_along_when_a_group_changes_its_protocol() -> None:
    groups = limited(migration_policy=MigrationPolicy.BIDIRECTIONAL)
    groups.topics.put("t", 2)
    answers = [groups.join(instance=each, protocols=subscription("t")) for each in "ab"]
    groups.advance(1)
    members = [answer.value.member_id for answer in answers]
    assert [groups.sync(each, 1, dict.fromkeys(members, b"")).error_code for each in members] == [0, 0]
    assert groups.beat("new", 0, topics=["t"]).error_code == 0
    assert groups.account.kept_bytes >= 3 * MEMBER_BYTES
    assert groups.beat("new", -1).error_code == 0
    assert isinstance(groups.shard.groups["g"], ClassicGroup)
    assert 2 * MEMBER_BYTES <= groups.account.kept_bytes < 3 * MEMBER_BYTES
    groups.advance(200_000)
    assert groups.account.kept_bytes == 0


def test_a_group_with_more_subscriptions_than_are_read_is_taken_to_read_every_topic() -> None:
    groups = Groups(initial_rebalance_delay_ms=0)
    ((name, metadata),) = subscription("t")
    padded = ((name, metadata + bytes(SUBSCRIPTIONS_DECODED_BYTES_MAX // 3)),)
    answers = [groups.join(instance=str(number), protocols=padded) for number in range(4)]
    groups.advance(1)
    group = groups.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert all(answer.error_code == 0 for answer in answers)
    assert group.subscribed_topics == frozenset({"t"})  # all say the same, which is read once
    groups.join(instance="4", protocols=((name, metadata + bytes(SUBSCRIPTIONS_DECODED_BYTES_MAX)),))
    assert group.find_subscribed_topics() is None
