"""Groups as administrators see them."""

from __future__ import annotations

from barnabas.coordinator.group.classic_group import STABLE, ClassicGroup
from barnabas.coordinator.group.registry import Group
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.list_groups import ListedGroup


def is_listed(group: Group, states: frozenset[str], types: frozenset[str]) -> bool:
    """Filters are lower case; an empty one lets everything through."""
    return (not states or group.state.value.lower() in states) and (not types or group.type_name in types)


def listed_group(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=group.type_name,
    )


def describe_classic(group: ClassicGroup) -> DescribedGroup:
    """Assignments and protocol are shown only while they hold: in a stable group."""
    is_stable = group.state is STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )
