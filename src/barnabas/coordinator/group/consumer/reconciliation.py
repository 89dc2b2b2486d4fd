"""Reconciliation of one member: from its current assignment to its target (KIP-848).

A partition must never have two owners. So a member first revokes what is not in its target and confirms that
(UNREVOKED_PARTITIONS until then). Only then does its epoch advance. Partitions that other members have not
revoked yet are handed over later (UNRELEASED_PARTITIONS). Each heartbeat takes one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from barnabas.coordinator.group.state.assignment import NO_PARTITIONS, Assignment, merge, overlap
from barnabas.coordinator.group.state.consumer_member import ConsumerMember, MemberState
from barnabas.core.errors import FencedMemberEpoch
from barnabas.core.ids import Uuid

IsOwned = Callable[[Uuid, int], bool]
"""Whether a member owns the partition now, or has yet to revoke it."""


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_owned: IsOwned,
) -> ConsumerMember:
    """The member after one step; `owned` is the request's list of owned partitions, None if it has none."""
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch == target_epoch:
                return member
            return _next(member, member.member_epoch, target_epoch, target, owned, is_owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, member.pending_revocation):
                return member
            # The member has reached its epoch, so the next step starts from the following one.
            return _next(member, member.member_epoch + 1, target_epoch, target, owned, is_owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(member, member.member_epoch, target_epoch, target, owned, is_owned)
        case _:
            if owned is None or owned:
                raise FencedMemberEpoch("the member's state was written by a newer broker; join again")
            return _next(member, target_epoch, target_epoch, target, owned, is_owned)


def _still_owns(owned: Assignment | None, partitions: Assignment) -> bool:
    return owned is None or overlap(owned, partitions)


def _next(
    member: ConsumerMember,
    member_epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_owned: IsOwned,
) -> ConsumerMember:
    kept: dict[Uuid, frozenset[int]] = {}
    to_revoke: dict[Uuid, frozenset[int]] = {}
    to_assign: dict[Uuid, frozenset[int]] = {}
    must_wait = False
    for topic_id in target.keys() | member.assigned.keys():
        wanted = target.get(topic_id, frozenset())
        present = member.assigned.get(topic_id, frozenset())
        if wanted & present:
            kept[topic_id] = wanted & present
        if present - wanted:
            to_revoke[topic_id] = present - wanted
        missing = wanted - present
        free = frozenset(partition for partition in missing if not is_owned(topic_id, partition))
        must_wait = must_wait or len(free) < len(missing)
        if free:
            to_assign[topic_id] = free
    if to_revoke and _still_owns(owned, to_revoke):
        return replace(
            member.at_epoch(member_epoch),
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    return replace(
        member.at_epoch(target_epoch),
        state=MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE,
        assigned=merge(kept, to_assign),
        pending_revocation=NO_PARTITIONS,
    )
