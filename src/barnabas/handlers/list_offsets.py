"""ListOffsets (2), v0-11. Gaps: no tiered storage, so "earliest local" is the earliest, and "latest tiered"
and "earliest pending upload" find nothing.

A request carries a timestamp or one of the negative constants below. A timestamp later than every record has
no offset: the response is -1, which clients rely on.

Version 0 has no lookup by record timestamp: it lists the base offsets of segments, newest first.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from barnabas.core.errors import (
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    UnsupportedVersion,
)
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.offset_numbers import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    READ_COMMITTED,
)
from barnabas.replication.partition.partition import Partition
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType
from barnabas.storage.log.time_search import search_by_time, search_max_timestamp

NEVER_FOUND = (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
"""No tiered storage."""

SINCE_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

VERSION_WITH_LEADER_EPOCH = 4
VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
CONSUMER = -1


class Found(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


NOTHING = Found(-1, -1, -1)


def handle_list_offsets(request: ListOffsetsRequest, context: RequestContext) -> Sliced[ListOffsetsResponse]:
    if request.replica_id != CONSUMER and not context.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, audited=False
    ):
        request.replica_id = CONSUMER  # only brokers read beyond the high watermark
    asked: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        yield
        for wanted in topic.partitions:
            asked[topic.name, wanted.partition_index] += 1
            yield
    topics: dict[str, ListOffsetsTopicResponse] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            times = asked.pop((topic.name, wanted.partition_index), 0)
            if times:
                answers = topics.setdefault(topic.name, ListOffsetsTopicResponse(name=topic.name)).partitions
                answer = yield from _answer(topic.name, wanted, request, context, is_repeated=times > 1)
                answers.append(answer)
            yield
    return ListOffsetsResponse(topics=list(topics.values()))


def _answer(
    topic: str,
    wanted: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
    *,
    is_repeated: bool,
) -> Sliced[ListOffsetsPartitionResponse]:
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    try:
        context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        if is_repeated:
            raise InvalidRequest(f"{topic}-{wanted.partition_index} is asked for twice")
        if wanted.timestamp < 0 and context.api_version < SINCE_VERSION.get(wanted.timestamp, 1 << 15):
            raise UnsupportedVersion(f"timestamp {wanted.timestamp} has no meaning in this version")
        partition = context.broker.replicas.partition(topic, wanted.partition_index)
        partition.leadership.check_leader(wanted.current_leader_epoch)
        if request.replica_id == CONSUMER and wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL):
            partition.leadership.check_current()
        end_offset = _end_offset(partition, request)
        is_behind = request.replica_id == CONSUMER and partition.is_behind_its_epoch
        if is_behind and wanted.timestamp == LATEST:
            raise _not_yet(context)
        if context.api_version == 0:
            answer.old_style_offsets = _segment_starts(partition, wanted, end_offset)
            return answer
        found = yield from _find(partition, wanted.timestamp, end_offset, context)
        if is_behind and found is NOTHING and wanted.timestamp not in NEVER_FOUND:
            raise _not_yet(context)
    except Exception as error:  # noqa: BLE001 - each partition has its own answer
        answer.error_code = as_kafka_error(error, f"listing offsets of {topic}-{wanted.partition_index}").code
        return answer
    answer.timestamp, answer.offset, leader_epoch = found
    if context.api_version >= VERSION_WITH_LEADER_EPOCH:
        answer.leader_epoch = leader_epoch
    return answer


def _not_yet(context: RequestContext) -> KafkaError:
    """A new leader does not know its high watermark yet; old clients know another error code."""
    if context.api_version >= VERSION_WITH_OFFSET_NOT_AVAILABLE:
        return OffsetNotAvailable("the high watermark is not known yet")
    return LeaderNotAvailable("the high watermark is not known yet")


def _end_offset(partition: Partition, request: ListOffsetsRequest) -> int:
    """End of the log for this replica id and isolation level."""
    if request.replica_id != CONSUMER:
        return partition.log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.log.last_stable_offset
    return partition.log.high_watermark


def _find(partition: Partition, timestamp: int, end_offset: int, context: RequestContext) -> Sliced[Found]:
    log = partition.log
    if timestamp == LATEST:
        return Found(-1, end_offset, partition.leadership.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start_offset = log.log_start_offset
        return Found(-1, start_offset, partition.epoch_for_offset(start_offset))
    if timestamp in NEVER_FOUND:
        return NOTHING
    if timestamp == MAX_TIMESTAMP:
        found = yield from search_max_timestamp(log, context.budget)
    else:
        found = yield from search_by_time(log, timestamp, context.budget)
    if found is None or found.offset >= end_offset:
        return NOTHING
    return Found(found.timestamp, found.offset, found.leader_epoch)


def _segment_starts(partition: Partition, wanted: ListOffsetsPartition, end_offset: int) -> list[int]:
    """Version 0: base offsets of segments written before a time, and the log end offset for "latest"."""
    log = partition.log
    marks = [
        (max(segment.base_offset, log.log_start_offset), segment.max_timestamp) for segment in log.segments
    ]
    if wanted.timestamp == EARLIEST:
        chosen = [marks[0][0]]
    elif wanted.timestamp == LATEST:
        chosen = [offset for offset, _ in marks] + [end_offset]
    else:
        chosen = [offset for offset, written_ms in marks if written_ms <= wanted.timestamp]
    newest_first = sorted({offset for offset in chosen if offset <= end_offset}, reverse=True)
    return newest_first[: wanted.max_num_offsets]


LIST_OFFSETS = Api(ApiKey.LIST_OFFSETS, handle=handle_list_offsets)
