"""Calls about groups that the commands do not need: OffsetDelete, and LeaveGroup for other members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from barnabas.client.admin.calls.per_resource import settle
from barnabas.client.core.cluster_state import GROUP, ClusterState
from barnabas.client.core.steps import Steps, ask, raise_for
from barnabas.core.errors import KafkaError, error_for
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


def delete_offsets(
    state: ClusterState, group_id: str, partitions: Collection[TopicPartition]
) -> Steps[dict[TopicPartition, None]]:
    """Delete committed offsets of a group."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for at in partitions:
        by_topic[at.topic].append(at.partition)
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for name, numbers in by_topic.items()
        ],
    )
    coordinator = yield from state.coordinator(group_id, GROUP)
    answer = yield from ask(coordinator, request, OffsetDeleteResponse)
    raise_for(answer.error_code, None, f"offsets of group {group_id}")
    results: dict[TopicPartition, None] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            at = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                errors[at] = error_for(row.error_code, f"offset of {at} in group {group_id}")
            else:
                results[at] = None
    return settle(results, errors)


def remove_members(
    state: ClusterState, group_id: str, instance_ids: Collection[str], reason: str
) -> Steps[dict[str, None]]:
    """Remove static members from a classic group, by their group.instance.id."""
    request = LeaveGroupRequest(
        group_id=group_id,
        members=[MemberIdentity(group_instance_id=name, reason=reason) for name in instance_ids],
    )
    coordinator = yield from state.coordinator(group_id, GROUP)
    answer = yield from ask(coordinator, request, LeaveGroupResponse)
    raise_for(answer.error_code, None, f"group {group_id}")
    results: dict[str, None] = {}
    errors: dict[str, KafkaError] = {}
    for row in answer.members:
        name = row.group_instance_id or row.member_id
        if row.error_code:
            errors[name] = error_for(row.error_code, f"member {name} of group {group_id}")
        else:
            results[name] = None
    return settle(results, errors)
