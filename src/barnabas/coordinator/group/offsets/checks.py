"""Membership checks of OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from barnabas.coordinator.group.state.classic_group import COMPLETING, DEAD, EMPTY, ClassicGroup
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.consumer_member import ConsumerMember
from barnabas.coordinator.group.state.registry import Group
from barnabas.core.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)

VERSION_WITH_GROUP_ERRORS = 9


def check_consumer_commit(
    group: ConsumerGroup, member_id: str, epoch: int, *, api_version: int | None = None
) -> None:
    """A member commits at its epoch; other clients may commit while the group is empty."""
    if epoch < 0 and group.is_empty:
        return
    member = group.member(member_id)
    if api_version is not None and api_version < VERSION_WITH_GROUP_ERRORS and not member.is_classic:
        raise UnsupportedVersion("members of the consumer protocol commit with version 9 or later")
    _check_member_epoch(member, epoch)


def check_consumer_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Tools send no member id, and may read."""
    if member_id is None and epoch < 0:
        return
    _check_member_epoch(group.member(member_id or ""), epoch)


def _check_member_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch == member.member_epoch:
        return
    message = f"member {member.member_id} is at epoch {member.member_epoch}, not {epoch}"
    raise IllegalGeneration(message) if member.is_classic else StaleMemberEpoch(message)


def check_classic_commit(
    group: ClassicGroup,
    member_id: str,
    instance_id: str | None,
    generation_id: int,
    *,
    is_transactional: bool = False,
) -> None:
    """A commit must come from a member of this generation, or from any client while the group is empty."""
    if group.state is DEAD:
        raise CoordinatorNotAvailable(f"group {group.group_id} is being removed")
    if generation_id < 0 and group.state is EMPTY:
        return
    if generation_id >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation_id != group.generation_id:
            raise IllegalGeneration(f"group {group.group_id} is at generation {group.generation_id}")
    elif not is_transactional and group.state is not EMPTY:
        raise UnknownMemberId(f"group {group.group_id} has members; only they may commit")
    if not is_transactional and group.state is COMPLETING:
        raise RebalanceInProgress(f"group {group.group_id} is rebalancing")


def check_offset_delete(group: Group) -> None:
    if isinstance(group, ConsumerGroup):
        return
    if group.state is DEAD:
        raise GroupIdNotFound(f"group {group.group_id} is being removed")
    if group.state is not EMPTY and not group.is_for_consumers:
        raise NonEmptyGroup(f"group {group.group_id} has members whose subscriptions are unknown")
