"""Consumer group requests: list, describe, delete, read and commit offsets.

A request about a group goes to its coordinator. The list is the union of the answers of all brokers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.cluster_state import GROUP
from barnabas.client.core.steps import Response, Steps, ask, raise_for
from barnabas.core.errors import GroupAuthorizationFailed, GroupIdNotFound
from barnabas.core.ids import TopicPartition
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from barnabas.protocol.schema.message import Message

CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    state: str
    type: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    type: str
    assignor: str
    coordinator_id: int
    members: tuple[GroupMember, ...]


class Groups:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def list(self) -> list[GroupListing]:
        cluster = self._cluster

        def attempt() -> Steps[list[GroupListing]]:
            yield from cluster.state.refresh(())
            found: dict[str, GroupListing] = {}
            for broker_id in list(cluster.state.brokers):
                answer = yield from ask(broker_id, ListGroupsRequest(), ListGroupsResponse)
                raise_for(answer.error_code, None, f"groups of broker {broker_id}")
                for row in answer.groups:
                    found[row.group_id] = GroupListing(
                        row.group_id, row.group_state, row.group_type.lower(), row.protocol_type
                    )
            return [found[name] for name in sorted(found)]

        return await cluster.run_with_retries(attempt)

    async def describe(self, group_id: str) -> GroupDescription:
        """Describe a group of either protocol. GROUP_ID_NOT_FOUND if there is none of that name."""

        def attempt() -> Steps[GroupDescription]:
            coordinator_id = yield from self._cluster.state.coordinator(group_id, GROUP)
            described = yield from _describe_consumer(group_id, coordinator_id)
            return described or (yield from _describe_classic(group_id, coordinator_id))

        return await self._cluster.run_with_retries(attempt)

    async def offsets(self, group_id: str, *, require_stable: bool = False) -> dict[TopicPartition, int]:
        """Committed offsets of the group. With `require_stable`, offsets of open transactions are awaited."""

        def attempt() -> Steps[dict[TopicPartition, int]]:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)],
                require_stable=require_stable,
            )
            answer = yield from self.ask(group_id, request, OffsetFetchResponse)
            (row,) = answer.groups
            raise_for(
                row.error_code, None, f"offsets of group {group_id}", needs=f"DESCRIBE on GROUP {group_id}"
            )
            for topic in row.topics:
                for each in topic.partitions:
                    raise_for(each.error_code, None, f"offset of {topic.name}-{each.partition_index}")
            return {
                TopicPartition(topic.name, each.partition_index): each.committed_offset
                for topic in row.topics
                for each in topic.partitions
                if each.committed_offset >= 0
            }

        return await self._cluster.run_with_retries(attempt)

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group that has no members."""
        await self.send_commit(group_id, commit_request(group_id, offsets))

    async def send_commit(self, group_id: str, request: OffsetCommitRequest) -> None:
        def attempt() -> Steps[None]:
            answer = yield from self.ask(group_id, request, OffsetCommitResponse)
            for topic in answer.topics:
                for each in topic.partitions:
                    raise_for(
                        each.error_code,
                        None,
                        f"offset of {topic.name}-{each.partition_index}",
                        needs=_right_to_commit(each.error_code, group_id, topic.name),
                    )

        await self._cluster.run_with_retries(attempt)

    async def delete(self, group_id: str) -> None:
        def attempt() -> Steps[None]:
            request = DeleteGroupsRequest(groups_names=[group_id])
            (row,) = (yield from self.ask(group_id, request, DeleteGroupsResponse)).results
            raise_for(row.error_code, None, f"group {group_id}", needs=f"DELETE on GROUP {group_id}")

        await self._cluster.run_with_retries(attempt)

    def ask(
        self,
        group_id: str,
        request: Message,
        response_class: type[Response],
        timeout_ms: float | None = None,
    ) -> Steps[Response]:
        """Send one request to the group's coordinator."""
        coordinator_id = yield from self._cluster.state.coordinator(group_id, GROUP)
        # Version 10 takes topic ids. Names need one request less.
        by_name = isinstance(request, OffsetFetchRequest | OffsetCommitRequest)
        return (yield from ask(coordinator_id, request, response_class, 9 if by_name else None, timeout_ms))


def _right_to_commit(code: int, group_id: str, topic: str) -> str:
    is_group = code == GroupAuthorizationFailed.code
    return f"READ on GROUP {group_id}" if is_group else f"READ on TOPIC {topic}"


def _describe_consumer(group_id: str, coordinator_id: int) -> Steps[GroupDescription | None]:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    answer = yield from ask(coordinator_id, request, ConsumerGroupDescribeResponse)
    (row,) = answer.groups
    if row.error_code == GroupIdNotFound.code:
        return None
    raise_for(row.error_code, row.error_message, f"group {group_id}", needs=f"DESCRIBE on GROUP {group_id}")
    members = tuple(
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            tuple(
                TopicPartition(topic.topic_name, number)
                for topic in each.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for each in row.members
    )
    return GroupDescription(group_id, row.group_state, CONSUMER, row.assignor_name, coordinator_id, members)


def _describe_classic(group_id: str, coordinator_id: int) -> Steps[GroupDescription]:
    request = DescribeGroupsRequest(groups=[group_id])
    answer = yield from ask(coordinator_id, request, DescribeGroupsResponse)
    (row,) = answer.groups
    raise_for(row.error_code, row.error_message, f"group {group_id}", needs=f"DESCRIBE on GROUP {group_id}")
    if row.group_state == "Dead":
        raise GroupIdNotFound(f"there is no group {group_id}")
    members = tuple(
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            assigned_partitions(each.member_assignment) if row.protocol_type == CONSUMER else (),
        )
        for each in row.members
    )
    return GroupDescription(group_id, row.group_state, "classic", row.protocol_data, coordinator_id, members)


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    member_id: str = "",
    generation_id: int = -1,
) -> OffsetCommitRequest:
    """OffsetCommit request of a member in its generation, or by default of a client outside the group."""
    by_topic: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), offset in offsets.items():
        by_topic[topic].append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        member_id=member_id,
        generation_id_or_member_epoch=generation_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
    )


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Partitions in the assignment of a classic consumer. Empty if the bytes are no such assignment."""
    if len(assignment) < 2:
        return ()
    try:
        decoded, _ = ConsumerProtocolAssignment.decode(assignment, 0, 2)
    except MalformedMessage:
        return ()
    return tuple(
        TopicPartition(each.topic, number)
        for each in decoded.assigned_partitions
        for number in each.partitions
    )
