"""Offsets of many partitions and groups, in few requests. A failure for one leaves the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.cluster_state import Topic
from barnabas.client.core.steps import ask
from barnabas.core.errors import KafkaError, UnsupportedVersion
from barnabas.core.ids import TopicPartition
from barnabas.core.regions import FileRegion
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from barnabas.protocol.schema.declarations import RecordsField
from barnabas.records.batch import MAGIC, RecordBatch, read_header
from barnabas.records.legacy import LegacyMessage, magic_of
from barnabas.records.record import iterate_records
from barnabas.records.varint import Buffer

PARTITIONS_A_REQUEST: Final = 2_000
GROUPS_A_REQUEST: Final = 200
INFLATED_BYTES_MAX: Final = 1 << 20
TIMESTAMP_BYTES: Final = 16 * 1024
"""Enough for the head of a batch, or for a few old messages."""
FETCH_BY_NAME: Final = 12
OFFSETS_BY_NAME: Final = 9
"""Last versions that name topics. Later ones take topic ids, which not all brokers have."""


class Committed(NamedTuple):
    offset: int
    metadata: str


class GroupAtCoordinator(NamedTuple):
    group: ListedGroup
    coordinator_id: int


def _chunks(found: Iterable[TopicPartition], size: int) -> Iterator[list[TopicPartition]]:
    rest = iter(found)
    while chunk := list(islice(rest, size)):
        yield chunk


def by_leader(topics: Iterable[Topic]) -> dict[int, list[TopicPartition]]:
    """Partitions that have a leader, by its id."""
    found: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for topic in topics:
        for each in topic.partitions:
            if each.leader_id >= 0:
                found[each.leader_id].append(TopicPartition(topic.name, each.index))
    return found


async def log_offsets(
    cluster: ClusterClient,
    leaders: Mapping[int, Sequence[TopicPartition]],
    timestamp: int,
    *,
    isolation: int = 0,
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for leader_id, partitions in leaders.items():
        for chunk in _chunks(partitions, PARTITIONS_A_REQUEST):
            topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
            for at in chunk:
                row = ListOffsetsPartition(partition_index=at.partition, timestamp=timestamp)
                topics[at.topic].append(row)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
                timeout_ms=int(cluster.request_timeout_ms),
            )
            try:
                answer = await cluster.run(ask(leader_id, request, ListOffsetsResponse))
            except KafkaError:
                continue  # a broker that is away: its partitions have no offsets now
            for topic in answer.topics:
                for each in topic.partitions:
                    if not each.error_code and each.offset >= 0:
                        found[TopicPartition(topic.name, each.partition_index)] = each.offset
    return found


async def groups_of_brokers(
    cluster: ClusterClient, broker_ids: Iterable[int]
) -> dict[str, GroupAtCoordinator]:
    """Groups with their coordinators, by name."""
    found: dict[str, GroupAtCoordinator] = {}
    for broker_id in broker_ids:
        try:
            answer = await cluster.run(ask(broker_id, ListGroupsRequest(), ListGroupsResponse))
        except KafkaError:
            continue
        for row in answer.groups:
            found[row.group_id] = GroupAtCoordinator(row, broker_id)
    return found


async def committed_offsets(
    cluster: ClusterClient, groups: Mapping[str, int]
) -> dict[str, dict[TopicPartition, Committed]]:
    """Committed offsets by group, of groups with the ids of their coordinators."""
    by_coordinator: defaultdict[int, list[str]] = defaultdict(list)
    for name, coordinator_id in groups.items():
        by_coordinator[coordinator_id].append(name)
    found: dict[str, dict[TopicPartition, Committed]] = {}
    for coordinator_id, names in by_coordinator.items():
        for start in range(0, len(names), GROUPS_A_REQUEST):
            chunk = names[start : start + GROUPS_A_REQUEST]
            try:
                found |= await _of_several(cluster, coordinator_id, chunk)
            except UnsupportedVersion:  # a broker before KIP-709 answers about one group at a time
                for name in chunk:
                    found |= await _of_one(cluster, coordinator_id, name)
            except KafkaError:
                continue
    return found


async def _of_several(
    cluster: ClusterClient, coordinator_id: int, names: Sequence[str]
) -> dict[str, dict[TopicPartition, Committed]]:
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    )
    answer = await cluster.run(ask(coordinator_id, request, OffsetFetchResponse, OFFSETS_BY_NAME))
    return {
        group.group_id: {
            TopicPartition(topic.name, each.partition_index): Committed(
                each.committed_offset, each.metadata or ""
            )
            for topic in group.topics
            for each in topic.partitions
            if each.committed_offset >= 0 and not each.error_code
        }
        for group in answer.groups
        if not group.error_code
    }


async def _of_one(
    cluster: ClusterClient, coordinator_id: int, name: str
) -> dict[str, dict[TopicPartition, Committed]]:
    nothing: list[OffsetFetchRequestTopic] | None = None
    request = OffsetFetchRequest(group_id=name, topics=nothing)
    try:
        answer = await cluster.run(ask(coordinator_id, request, OffsetFetchResponse, 7))
    except KafkaError:
        return {}
    return {
        name: {
            TopicPartition(topic.name, each.partition_index): Committed(
                each.committed_offset, each.metadata or ""
            )
            for topic in answer.topics
            for each in topic.partitions
            if each.committed_offset >= 0 and not each.error_code
        }
    }


async def timestamps_at(
    cluster: ClusterClient,
    leaders: Mapping[int, Sequence[TopicPartition]],
    offsets: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Timestamp of the record at each offset, or of the first one behind it.

    Little is fetched of each partition. A batch that does not fit answers with the time of its first record,
    which is earlier by no more than the batch's own span.
    """
    found: dict[TopicPartition, int] = {}
    for leader_id, partitions in leaders.items():
        topics: defaultdict[str, list[FetchPartition]] = defaultdict(list)
        for at in partitions:
            if at in offsets:
                row = FetchPartition(
                    partition=at.partition, fetch_offset=offsets[at], partition_max_bytes=TIMESTAMP_BYTES
                )
                topics[at.topic].append(row)
        if not topics:
            continue
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=TIMESTAMP_BYTES * sum(map(len, topics.values())),
            topics=[FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
        )
        try:
            answer = await cluster.run(ask(leader_id, request, FetchResponse, FETCH_BY_NAME))
        except KafkaError:
            continue
        for topic in answer.responses:
            for each in topic.partitions:
                at = TopicPartition(topic.topic, each.partition_index)
                stamp = None if each.error_code else _first_timestamp(_read(each.records), offsets[at])
                if stamp is not None:
                    found[at] = stamp
    return found


def _read(found: RecordsField) -> Buffer:
    assert not isinstance(found, FileRegion), "an answer has bytes"
    return found or b""


def _first_timestamp(records: Buffer, offset: int) -> int | None:
    position = 0
    try:
        while position < len(records):
            if magic_of(records, position) < MAGIC:
                message = LegacyMessage(records, position)
                if message.offset >= offset:
                    return message.timestamp if message.timestamp >= 0 else None
                position += message.size_bytes
                continue
            batch = read_header(records, position)
            if batch.last_offset >= offset:
                return _timestamp_in(batch, offset, position + batch.size_bytes <= len(records))
            position += batch.size_bytes
    except KafkaError:  # a batch that the answer cut off inside its head
        return None
    return None


def _timestamp_in(batch: RecordBatch, offset: int, is_whole: bool) -> int | None:
    """Timestamp of the record at the offset; of the batch's first record where that cannot be read."""
    if batch.is_log_append_time:
        return batch.max_timestamp
    if is_whole and not batch.is_control:
        try:
            for record in iterate_records(batch, INFLATED_BYTES_MAX):
                if record.offset >= offset:
                    return record.timestamp
        except KafkaError:
            pass
    return batch.max_timestamp if batch.has_delete_horizon else batch.base_timestamp
