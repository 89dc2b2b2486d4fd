"""Groups: OffsetCommit (8), OffsetFetch (9), JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14),
DescribeGroups (15), ListGroups (16), DeleteGroups (42), OffsetDelete (47), ConsumerGroupHeartbeat (68),
ConsumerGroupDescribe (69)."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.differential.case import Case, InVersion, Until, case
from tests.differential.world import NOWHERE, Topic, World

LOADING, UNAVAILABLE, MOVED = 14, 15, 16


def is_settled(answer: Any) -> bool:
    return answer.error_code not in (LOADING, UNAVAILABLE, MOVED)


def is_assigned(answer: Any) -> bool:
    """Kafka's coordinator learns of a new topic a moment after its creator."""
    return is_settled(answer) and bool(answer.assignment and answer.assignment.topic_partitions)


def is_committed(answer: Any) -> bool:
    return answer.topics[0].partitions[0].error_code not in (LOADING, UNAVAILABLE, MOVED)


def ready(group: str) -> Until:
    """The first group makes the offsets topic, which takes Kafka a moment."""
    return Until(
        FindCoordinatorRequest(coordinator_keys=[group]),
        lambda answer: all(each.error_code == 0 for each in answer.coordinators),
    )


def join(group: str, member: str = "", *, instance: str | None = None, version: int = 9,
         kind: str = "consumer", session_ms: int = 10_000) -> JoinGroupRequest:  # fmt: skip
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000 if version >= 1 else -1,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
    )


def settled(request: JoinGroupRequest) -> Until:
    return Until(request, is_settled)


def member_of(world: World, group: str) -> Any:
    """A lone member in a stable group, by the newest versions: (member id, generation)."""
    yield ready(group)
    asked = yield InVersion(join(group), 9)
    joined = yield InVersion(join(group, asked.member_id), 9)
    yield InVersion(sync(group, joined.member_id, joined.generation_id, {joined.member_id: b"mine"}), 5)
    return joined.member_id, joined.generation_id


def sync(group: str, member: str, generation: int, plan: dict[str, bytes] | None = None,
         kind: str | None = "consumer", protocol: str | None = "range") -> SyncGroupRequest:  # fmt: skip
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type=kind,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in (plan or {}).items()
        ],
    )


def commit(group: str, topic: Topic, offset: int, *, member: str = "", generation: int = -1,
           partition: int = 0, metadata: str | None = "") -> OffsetCommitRequest:  # fmt: skip
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )


def fetch(
    world: World, group: str, *topics: Topic, every: bool = False, stable: bool = False
) -> OffsetFetchRequest:
    version = world.version
    if version < 8:
        old = [OffsetFetchRequestTopic(name=each.name, partition_indexes=[0, 1]) for each in topics]
        return OffsetFetchRequest(
            group_id=group, topics=None if every else old, require_stable=stable and version >= 7
        )
    new = [OffsetFetchRequestTopics(name=t.name, topic_id=t.id, partition_indexes=[0, 1]) for t in topics]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None if every else new)], require_stable=stable
    )


# Membership


@case(ApiKey.JOIN_GROUP)
def a_lone_member(world: World) -> Case:
    group = world.new_name()
    yield ready(group)
    first = yield settled(join(group, version=world.version))
    if world.version >= 4:
        yield join(group, first.member_id, version=world.version)
        yield join(group, first.member_id, version=world.version)


@case(ApiKey.JOIN_GROUP)
def joins_that_are_refused(world: World) -> Case:
    group, version = world.new_name(), world.version
    yield ready(group)
    yield join("", version=version)
    yield settled(join(group, "nobody", version=version))
    yield join(group, version=version, session_ms=10)
    yield join(group, version=version, session_ms=10_000_000)
    yield join(group, version=version, kind="")
    refused = join(group, version=version)
    refused.protocols = []
    yield refused


@case(ApiKey.JOIN_GROUP, "5+")
def a_static_member_twice(world: World) -> Case:
    group = world.new_name()
    yield ready(group)
    first = yield settled(join(group, instance="i"))
    yield sync(group, first.member_id, 1, {first.member_id: b"mine"})
    yield join(group, instance="i")
    yield join(group, first.member_id, instance="i")


@case(ApiKey.SYNC_GROUP)
def assignments(world: World) -> Case:
    group = world.new_name()
    yield ready(group)
    asked = yield settled(join(group))
    joined = yield join(group, asked.member_id)
    member, generation = joined.member_id, joined.generation_id
    yield sync(group, member, generation + 1)
    yield sync(group, "nobody", generation)
    yield sync(group, member, generation, {member: b"mine", "nobody": b"not"})
    yield sync(group, member, generation)
    yield sync("", member, generation)
    yield sync("nowhere", member, generation)


@case(ApiKey.SYNC_GROUP, "5+")
def protocols_that_do_not_fit(world: World) -> Case:
    group = world.new_name()
    member, generation = yield from member_of(world, group)
    yield sync(group, member, generation, kind="other")
    yield sync(group, member, generation, protocol="other")
    yield sync(group, member, generation, kind=None, protocol=None)


@case(ApiKey.HEARTBEAT)
def heartbeats(world: World) -> Case:
    group = world.new_name()
    member, generation = yield from member_of(world, group)
    for name, number in ((member, generation), (member, generation + 1), ("nobody", generation), ("", -1)):
        yield HeartbeatRequest(group_id=group, member_id=name, generation_id=number)
    yield HeartbeatRequest(group_id="nowhere", member_id=member, generation_id=generation)
    yield HeartbeatRequest(group_id="", member_id=member, generation_id=generation)


@case(ApiKey.LEAVE_GROUP, "0-2")
def leaving_alone(world: World) -> Case:
    group = world.new_name()
    member, _ = yield from member_of(world, group)
    for name in ("nobody", member, member):
        yield LeaveGroupRequest(group_id=group, member_id=name)
    yield LeaveGroupRequest(group_id="nowhere", member_id=member)
    yield LeaveGroupRequest(group_id="", member_id=member)


@case(ApiKey.LEAVE_GROUP, "3+")
def leaving_together(world: World) -> Case:
    group = world.new_name()
    member, _ = yield from member_of(world, group)
    for names in ([], ["nobody", member], [member]):
        yield LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=name) for name in names])
    by_instance = MemberIdentity(member_id="", group_instance_id="nobody")
    yield LeaveGroupRequest(group_id=group, members=[by_instance])
    yield LeaveGroupRequest(group_id="nowhere", members=[MemberIdentity(member_id=member)])
    yield LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id=member)])


# Offsets


@case(ApiKey.OFFSET_COMMIT)
def commits_from_outside(world: World) -> Case:
    group, topic = world.new_name(), world.topic(2)
    yield ready(group)
    yield Until(commit(group, topic, 5), is_committed)
    yield commit(group, topic, 6, metadata="a note")
    yield commit(group, topic, 7, metadata=None)
    yield commit(group, topic, 8, metadata="x" * 5_000)
    yield commit(group, topic, 9, partition=77)
    yield commit(group, NOWHERE, 1)
    yield commit(group, topic, -1)
    yield commit(group, topic, 5, member="nobody", generation=1)
    yield commit("unheard-of", topic, 5, member="nobody", generation=1)
    yield commit("", topic, 5)
    empty = commit(group, topic, 5)
    empty.topics = []
    yield empty
    yield OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])


@case(ApiKey.OFFSET_COMMIT)
def commits_of_members(world: World) -> Case:
    group, topic = world.new_name(), world.topic()
    member, generation = yield from member_of(world, group)
    yield commit(group, topic, 5, member=member, generation=generation)
    yield commit(group, topic, 6, member=member, generation=generation + 1)
    yield commit(group, topic, 7, member="nobody", generation=generation)
    yield commit(group, topic, 8)


@case(ApiKey.OFFSET_FETCH)
def fetches(world: World) -> Case:
    group, topic = world.new_name(), world.topic(2)
    yield ready(group)
    yield Until(commit(group, topic, 5, metadata="note"),
                is_committed)  # fmt: skip
    yield fetch(world, group, topic)
    yield fetch(world, group, NOWHERE)
    yield fetch(world, group)
    yield fetch(world, "unheard-of", topic)
    yield fetch(world, "", topic)


@case(ApiKey.OFFSET_FETCH, "2+")
def fetches_of_everything(world: World) -> Case:
    group, topic = world.new_name(), world.topic(2)
    yield ready(group)
    yield Until(commit(group, topic, 5), is_committed)
    yield fetch(world, group, every=True)
    yield fetch(world, "unheard-of", every=True)
    yield fetch(world, group, topic, stable=True)


@case(ApiKey.OFFSET_DELETE)
def deletions_of_offsets(world: World) -> Case:
    group, topic = world.new_name(), world.topic(2)
    yield ready(group)
    yield Until(commit(group, topic, 5), is_committed)

    def delete(where: str, *names: str) -> OffsetDeleteRequest:
        rows = [OffsetDeleteRequestPartition(partition_index=number) for number in (0, 1)]
        return OffsetDeleteRequest(
            group_id=where, topics=[OffsetDeleteRequestTopic(name=name, partitions=rows) for name in names]
        )

    yield delete("unheard-of", topic.name)
    yield delete(group, topic.name, NOWHERE.name)
    yield delete("", topic.name)
    yield OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])


# Administration


@case(ApiKey.DESCRIBE_GROUPS)
def descriptions(world: World) -> Case:
    group = world.new_name()
    member, _ = yield from member_of(world, group)
    yield DescribeGroupsRequest(groups=[group, "unheard-of"])
    if world.version >= 3:
        yield DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    yield LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])
    yield DescribeGroupsRequest(groups=[group, ""])
    yield DescribeGroupsRequest(groups=[])


@case(ApiKey.LIST_GROUPS, "4+")
def lists_that_are_filtered(world: World) -> Case:
    yield ready(world.new_name())
    yield ListGroupsRequest(states_filter=["no such state"])
    yield ListGroupsRequest(states_filter=["Dead"])


@case(ApiKey.DELETE_GROUPS)
def deletions_of_groups(world: World) -> Case:
    group = world.new_name()
    member, _ = yield from member_of(world, group)
    yield DeleteGroupsRequest(groups_names=[group, "unheard-of", ""])
    yield LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])
    yield DeleteGroupsRequest(groups_names=[group])
    yield DeleteGroupsRequest(groups_names=[group])
    yield DeleteGroupsRequest(groups_names=[])


# The consumer protocol


def beat(group: str, member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)


def first_beat(group: str, member: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return beat(group, member, 0, rebalance_timeout_ms=30_000, topic_partitions=[],
                subscribed_topic_names=list(topics), **fields)  # fmt: skip


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def a_member_comes_and_goes(world: World) -> Case:
    group, topic = world.new_name(), world.topic(3)
    yield ready(group)
    joined = yield Until(first_beat(group, "m", topic.name), is_assigned)
    epoch = joined.member_epoch
    everything = [TopicPartitions(topic_id=topic.id, partitions=[0, 1, 2])]
    yield beat(group, "m", epoch)
    yield beat(group, "m", epoch, topic_partitions=everything)
    yield beat(group, "m", epoch, topic_partitions=everything, rebalance_timeout_ms=30_000,
               subscribed_topic_names=[topic.name])  # fmt: skip
    yield beat(group, "m", epoch + 1)
    yield beat(group, "m", epoch + 1, topic_partitions=everything)
    yield first_beat(group, "m", topic.name)
    yield beat(group, "nobody", epoch)
    yield ConsumerGroupDescribeRequest(group_ids=[group])
    yield commit(group, topic, 5, member="m", generation=epoch)
    yield commit(group, topic, 5, member="m", generation=epoch + 1)
    yield commit(group, topic, 5, member="nobody", generation=epoch)
    yield commit(group, topic, 5)
    yield DeleteGroupsRequest(groups_names=[group])
    yield beat(group, "m", -1)
    yield beat(group, "m", -1)
    yield DescribeGroupsRequest(groups=[group])
    yield commit(group, topic, 7)
    yield DeleteGroupsRequest(groups_names=[group])


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def heartbeats_that_are_refused(world: World) -> Case:
    group, topic = world.new_name(), world.topic()
    yield ready(group)
    yield Until(beat(group, "m", 5), is_settled)
    yield beat(group, "m", -1)
    yield beat(group, "m", -2)
    yield beat(group, "m", -3)
    yield beat(group, "m", 0)
    yield first_beat("", "m", topic.name)
    yield first_beat(group, "m", topic.name, server_assignor="none")
    yield first_beat(group, "m", topic.name, instance_id="")
    yield first_beat(group, "m", topic.name, rack_id="")
    yield first_beat(group, "", topic.name)
    yield first_beat(group, "m")


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT, "1+")
def expressions(world: World) -> Case:
    group, topic = world.new_name(), world.topic(2)
    yield ready(group)
    asked = first_beat(group, "m", subscribed_topic_regex="(")
    yield Until(asked, is_settled)
    yield first_beat(group, "m", subscribed_topic_regex="(?=x)")
    yield first_beat(group, "m", subscribed_topic_regex=f"{topic.name}|nothing")


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def static_members(world: World) -> Case:
    group, topic = world.new_name(), world.topic(2)
    yield ready(group)
    asked = first_beat(group, "m", topic.name, instance_id="i")
    joined = yield Until(asked, is_assigned)
    yield first_beat(group, "n", topic.name, instance_id="i")
    yield beat(group, "m", -2, instance_id="i")
    yield first_beat(group, "n", topic.name, instance_id="i")
    yield beat(group, "m", joined.member_epoch, instance_id="i")
    yield beat(group, "n", -1, instance_id="j")
    yield beat(group, "n", -1, instance_id="i")


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def strangers_to_the_protocol(world: World) -> Case:
    group, topic = world.new_name(), world.topic()
    member, _ = yield from member_of(world, group)
    yield first_beat(group, "m", topic.name)
    yield LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])
    yield first_beat(group, "m", topic.name)
    yield beat(group, "m", -1)


@case(ApiKey.CONSUMER_GROUP_DESCRIBE)
def descriptions_of_consumer_groups(world: World) -> Case:
    group, topic = world.new_name(), world.topic(2)
    yield ready(group)
    asked = first_beat(group, "m", topic.name)
    yield Until(asked, is_settled)
    yield ConsumerGroupDescribeRequest(group_ids=[group, "unheard-of"])
    yield ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    yield beat(group, "m", -1)
    yield ConsumerGroupDescribeRequest(group_ids=[group])
    yield ConsumerGroupDescribeRequest(group_ids=[])
