"""Groups in DescribeGroups, ListGroups and ConsumerGroupDescribe."""

from __future__ import annotations

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.coordinator.group.state.assignment import NO_PARTITIONS, Assignment
from barnabas.coordinator.group.state.classic_group import STABLE, ClassicGroup
from barnabas.coordinator.group.state.consumer_group import ConsumerGroup
from barnabas.coordinator.group.state.registry import Group
from barnabas.protocol.messages import consumer_group_describe as consumer
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.list_groups import ListedGroup

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


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
    """Assignments and protocol are shown only in a stable group, where they hold."""
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


def describe_consumer(
    group: ConsumerGroup, default_assignor: str, topics: MetadataCache
) -> consumer.DescribedGroup:
    return consumer.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(group.members.values(), default_assignor),
        members=[
            consumer.Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topic_names),
                subscribed_topic_regex=member.topic_regex or "",
                assignment=_described(member.assigned, topics),
                target_assignment=_described(group.target.get(member.member_id, NO_PARTITIONS), topics),
                member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
            )
            for member in group.members.values()
        ],
    )


def _described(assignment: Assignment, topics: MetadataCache) -> consumer.Assignment:
    described: list[consumer.TopicPartitions] = []
    for topic_id, partitions in assignment.items():
        topic = topics.topic_by_id(topic_id)
        if topic is not None:
            described.append(
                consumer.TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions)
                )
            )
    return consumer.Assignment(topic_partitions=described)
