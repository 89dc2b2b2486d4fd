"""Groups that this broker coordinates: pages with their lag in records and in time, and one in detail.

The lag in records is the high watermark minus the committed offset, the lag in time the age of the first
record behind it. Both come from memory and the time index, for groups without members too. For a partition
without a replica here, the end offset is what its leader said a few seconds ago.

The members of a classic group write its assignment, which may name a quarter of a million partitions. So an
assignment is decoded in a step of its own, and an answer has a number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from barnabas.coordinator.group.offsets.records import is_of_another_topic, unpack
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.state.classic_group import ClassicGroup
from barnabas.coordinator.group.state.embedded_protocol import CONSUMER_PROTOCOL_TYPE, decode_assignment
from barnabas.coordinator.group.state.registry import Group
from barnabas.core.errors import GroupAuthorizationFailed, GroupIdNotFound
from barnabas.core.ids import TopicPartition
from barnabas.core.steps import Sliced
from barnabas.inspection.inspected import Inspected
from barnabas.inspection.parameters import ROWS_MAX, choice, flag, number, text
from barnabas.inspection.sorting import chunks_of, matches, sorted_in_slices
from barnabas.inspection.viewer import Viewer
from barnabas.inspection.wire import Question
from barnabas.protocol.errors import MalformedMessage
from barnabas.security.acl.vocabulary import ResourceType

SORTS: Final = ("name", "state", "members", "topics", "lag", "time")
MEMBERS_MAX: Final = 10_000
ASSIGNMENT_BYTES_MAX: Final = 512 * 1024
"""Of one member; the partitions of a longer one are not shown."""
PARTITIONS_MAX: Final = 20_000
"""Partitions of a group in an answer, and of all its members."""
Row = dict[str, Any]


class Found(NamedTuple):
    group: Group
    shard: GroupShard


class Lag(NamedTuple):
    """Lag of a group over its partitions; None where one of them is not known."""

    records: int | None
    ms: int | None


NO_LAG: Final = Lag(None, None)


def groups(inspected: Inspected, question: Question) -> Sliced[Row]:
    """A page of the groups that the user may describe."""
    viewer = inspected.viewer(question)
    words, topic = text(question, "search").casefold().split(), text(question, "topic")
    sort = choice(question, "sort", SORTS)
    found: list[Found] = []
    is_hidden = bool(topic) and not viewer.sees_topic(topic)
    for chunk in chunks_of(() if is_hidden else all_groups(inspected)):
        for each in chunk:
            if not matches(each.group.group_id, words) or not viewer.sees_group(each.group.group_id):
                continue
            if not topic or (yield from _reads(inspected, each, topic)):
                found.append(each)
        yield
    is_descending = flag(question, "descending")
    in_order = yield from sorted_in_slices(
        found, lambda each: each.group.group_id, descending=is_descending and sort == "name"
    )
    if sort != "name":
        keys = yield from _keys(inspected, in_order, sort)
        in_order = yield from sorted_in_slices(in_order, keys, descending=is_descending)
    offset, limit = number(question, "offset"), number(question, "limit", 50, ROWS_MAX)
    page = in_order[offset : offset + limit]
    rows = []
    for each in page:
        lag = yield from lag_of(inspected, each)
        rows.append(_row(inspected, each, lag))
    return {"total": len(found), "rows": rows}


def lag_total(inspected: Inspected, question: Question) -> Sliced[Row]:
    """Sum of the lags of all groups in records; null if it is not known of one."""
    viewer = inspected.viewer(question)
    total = 0
    is_known = True
    for chunk in chunks_of(all_groups(inspected)):
        for each in chunk:
            if viewer.sees_group(each.group.group_id):
                for committed_to in chunks_of(_offsets(inspected, each)):
                    for topic_partition, offset in committed_to:
                        end_offset = inspected.end_offset(topic_partition)
                        if end_offset is None:
                            is_known = False
                        elif end_offset > offset:
                            total += end_offset - offset
                    yield
    return {"lag_records": total if is_known else None}


def group(inspected: Inspected, question: Question) -> Sliced[Row]:
    """One group with its members and the offsets of its partitions."""
    viewer, group_id = inspected.viewer(question), text(question, "group_id")
    if not viewer.sees_group(group_id):
        raise GroupAuthorizationFailed(f"not authorized: DESCRIBE on GROUP {group_id}")
    found = next((each for each in all_groups(inspected) if each.group.group_id == group_id), None)
    if found is None:
        raise GroupIdNotFound(f"group {group_id} is not coordinated by broker {inspected.broker.broker_id}")
    members: list[Row] = []
    owners: dict[TopicPartition, str] = {}
    for member in _members(inspected, found.group):
        assigned, member["partitions"] = member["partitions"], []
        for chunk in chunks_of(assigned):
            for topic, partition in chunk:
                if len(owners) < PARTITIONS_MAX and viewer.sees_topic(topic):
                    member["partitions"].append((topic, partition))
                    owners[TopicPartition(topic, partition)] = member["member_id"]
            yield
        if len(members) < MEMBERS_MAX:
            members.append(member)
        yield
    committed, more = yield from _visible_commits(inspected, found, viewer)
    in_order = yield from sorted_in_slices({*committed, *owners}, lambda each: each)
    offsets = []
    for topic_partition in in_order[:PARTITIONS_MAX]:
        at, noted = committed.get(topic_partition, (None, ""))
        offsets.append(_offset_row(inspected, topic_partition, at, noted, owners.get(topic_partition)))
        yield
    lag = yield from lag_of(inspected, found)
    return {
        "row": _row(inspected, found, lag),
        "assignor": _assignor(found),
        "members": members,
        "offsets": offsets,
        "more_offsets": more + len(in_order) - len(offsets),
    }


def committed(inspected: Inspected, question: Question) -> Sliced[Row]:
    """Groups with a committed offset in one partition."""
    viewer = inspected.viewer(question)
    topic, partition = text(question, "topic"), number(question, "partition")
    viewer.require(ResourceType.TOPIC, topic)
    rows: list[tuple[str, int]] = []
    known = inspected.broker.metadata.topic(topic)
    for _, shard in inspected.broker.groups.runtime.active_shards():
        for group_id, topics in list(shard.offsets.committed.items()):
            packed = topics.get(topic, {}).get(partition)
            yield
            if packed is None or known is None or is_of_another_topic(packed, known.topic_id):
                continue
            if viewer.sees_group(group_id) and len(rows) < ROWS_MAX:
                rows.append((group_id, unpack(packed).offset))
    return {"rows": sorted(rows)}


# --- parts of the answers ---


def all_groups(inspected: Inspected) -> Iterator[Found]:
    for _, shard in inspected.broker.groups.runtime.active_shards():
        for group in list(shard.groups.values()):
            yield Found(group, shard)


def lag_of(inspected: Inspected, found: Found) -> Sliced[Lag]:
    records, oldest_ms = 0, 0
    has_commits, is_known, is_time_known = False, True, True
    now_ms = inspected.broker.clock.now_ms()
    for topic_partition, offset in _offsets(inspected, found):
        has_commits = True
        end_offset = inspected.end_offset(topic_partition)
        if end_offset is None:
            is_known = False
        elif end_offset > offset:
            records += end_offset - offset
            written_ms = inspected.written_ms(topic_partition, offset)
            if written_ms is None:
                is_time_known = False
            else:
                oldest_ms = max(oldest_ms, now_ms - written_ms)
        yield
    if not has_commits or not is_known:
        return NO_LAG
    return Lag(records, oldest_ms if is_time_known else None)


def _offsets(inspected: Inspected, found: Found) -> Iterator[tuple[TopicPartition, int]]:
    """Committed offsets of the group in topics that exist."""
    return ((each, offset) for each, offset, _ in _commits(inspected, found))


def _commits(inspected: Inspected, found: Found) -> Iterator[tuple[TopicPartition, int, str]]:
    metadata = inspected.broker.metadata
    for topic, partitions in list(found.shard.offsets.topics(found.group.group_id).items()):
        known = metadata.topic(topic)
        if known is None:
            continue
        for partition, packed in list(partitions.items()):
            if not is_of_another_topic(packed, known.topic_id):
                commit = unpack(packed)
                yield TopicPartition(topic, partition), commit.offset, commit.metadata


def _visible_commits(
    inspected: Inspected, found: Found, viewer: Viewer
) -> Sliced[tuple[dict[TopicPartition, tuple[int, str]], int]]:
    """Offset and metadata by partition, and the number of those that are left out."""
    commits: dict[TopicPartition, tuple[int, str]] = {}
    more = 0
    for chunk in chunks_of(_commits(inspected, found)):
        for each, offset, metadata in chunk:
            if not viewer.sees_topic(each.topic):
                continue
            if len(commits) < PARTITIONS_MAX:
                commits[each] = offset, metadata
            else:
                more += 1
        yield
    return commits, more


def _row(inspected: Inspected, found: Found, lag: Lag) -> Row:
    group = found.group
    return {
        "group_id": group.group_id,
        "state": group.state.value,
        "kind": _kind(group),
        "members": len(group.members),
        "topics": len(found.shard.offsets.topics(group.group_id)),
        "lag_records": lag.records,
        "lag_ms": lag.ms,
        "coordinator_id": inspected.broker.broker_id,
    }


def _kind(group: Group) -> str:
    is_other = isinstance(group, ClassicGroup) and group.protocol_type not in (
        None,
        "",
        CONSUMER_PROTOCOL_TYPE,
    )
    return str(group.protocol_type) if is_other else group.type_name


def _assignor(found: Found) -> str:
    group = found.group
    if isinstance(group, ClassicGroup):
        return group.protocol_name or ""
    default = found.shard.registry.settings.consumer_assignors[0]
    return group.preferred_assignor(group.members.values(), default)


def _members(inspected: Inspected, group: Group) -> Iterator[Row]:
    metadata = inspected.broker.metadata
    if isinstance(group, ClassicGroup):
        for member in list(group.members.values()):
            yield {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "partitions": _assigned(group, member.assignment),
            }
        return
    for each in list(group.members.values()):
        partitions = []
        for topic_id, numbers in each.assigned.items():
            topic = metadata.topic_by_id(topic_id)
            if topic is not None:
                partitions += [(topic.name, number) for number in sorted(numbers)]
        yield {
            "member_id": each.member_id,
            "instance_id": each.instance_id,
            "client_id": each.client_id,
            "host": each.client_host,
            "partitions": partitions,
        }


def _assigned(group: ClassicGroup, assignment: bytes) -> list[tuple[str, int]]:
    is_known = group.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(assignment)
    if not is_known or len(assignment) > ASSIGNMENT_BYTES_MAX:
        return []
    try:
        decoded = decode_assignment(assignment)
    except MalformedMessage:
        return []
    return [(each.topic, number) for each in decoded.assigned_partitions for number in each.partitions]


def _offset_row(
    inspected: Inspected,
    topic_partition: TopicPartition,
    offset: int | None,
    metadata: str,
    owner: str | None,
) -> Row:
    end_offset = inspected.end_offset(topic_partition)
    local = inspected.broker.replicas.find(topic_partition)
    lag = None if offset is None or end_offset is None else max(0, end_offset - offset)
    written_ms = inspected.written_ms(topic_partition, offset) if lag and offset is not None else None
    now_ms = inspected.broker.clock.now_ms()
    return {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "committed": offset,
        "start_offset": None if local is None else local.log.log_start_offset,
        "end_offset": end_offset,
        "lag_records": lag,
        "lag_ms": 0 if lag == 0 else None if written_ms is None else max(0, now_ms - written_ms),
        "member_id": owner,
        "metadata": metadata,
    }


def _reads(inspected: Inspected, found: Found, topic: str) -> Sliced[bool]:
    """Whether the group has offsets in the topic, or a member that it is assigned to."""
    if topic in found.shard.offsets.topics(found.group.group_id):
        return True
    for member in _members(inspected, found.group):
        if any(topic == name for name, _ in member["partitions"]):
            return True
        yield
    return False


def _keys(inspected: Inspected, found: list[Found], sort: str) -> Sliced[Callable[[Found], Any]]:
    match sort:
        case "state":
            return lambda each: each.group.state.value
        case "members":
            return lambda each: len(each.group.members)
        case "topics":
            return lambda each: len(each.shard.offsets.topics(each.group.group_id))
    keys: dict[str, int | None] = {}
    for each in found:
        lag = yield from lag_of(inspected, each)
        keys[each.group.group_id] = lag.records if sort == "lag" else lag.ms
        yield
    return lambda each: keys[each.group.group_id]
