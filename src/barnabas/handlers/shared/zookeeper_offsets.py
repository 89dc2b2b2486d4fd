"""Version 0 of OffsetCommit and OffsetFetch: offsets in the coordination store.

Consumers of Kafka 0.8 keep their offsets in ZooKeeper through these requests. The group coordinator takes no
part: Kafka 0.8 has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.cluster.coordination.contract import BadArguments, CoordinationError
from barnabas.cluster.znodes.consumer_offsets import read_consumer_offset, write_consumer_offset
from barnabas.core.errors import (
    NONE,
    InvalidGroupId,
    KafkaError,
    OffsetMetadataTooLarge,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import NO_OFFSET
from barnabas.core.reporting.log_text import cut
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.security.acl.vocabulary import Operation, ResourceType


async def commit_stored_offsets(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for topic in request.topics:
        await context.breathe()
        # A partition that is named twice is one write of the store: its last offset counts.
        last = {each.partition_index: each for each in topic.partitions}
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=index, error_code=await _commit(request.group_id, topic.name, each, context)
            )
            for index, each in last.items()
        ]
        response.topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return response


async def _commit(
    group: str, topic: str, partition: OffsetCommitRequestPartition, context: RequestContext
) -> int:
    index = partition.partition_index
    await context.breathe()
    try:
        context.require(Operation.READ, ResourceType.TOPIC, topic)
        _check(group, topic, index, context)
        if len(partition.committed_metadata or "") > context.broker.config.offset_metadata_max_bytes:
            raise OffsetMetadataTooLarge("the offset's metadata exceeds offset.metadata.max.bytes")
        with _as_group_id_error(group):
            await write_consumer_offset(
                context.broker.znodes, group, topic, index, partition.committed_offset
            )
    except (KafkaError, CoordinationError) as error:
        return as_kafka_error(error, f"committing an offset of {group}").code
    return NONE


async def fetch_stored_offsets(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    response = OffsetFetchResponse()
    for topic in request.topics or ():
        await context.breathe()
        partitions = [
            await _fetch(request.group_id, topic.name, index, context) for index in topic.partition_indexes
        ]
        response.topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response


async def _fetch(group: str, topic: str, index: int, context: RequestContext) -> OffsetFetchResponsePartition:
    answer = OffsetFetchResponsePartition(partition_index=index, committed_offset=NO_OFFSET, metadata="")
    await context.breathe()
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group)
        context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        _check(group, topic, index, context)
        with _as_group_id_error(group):
            offset = await read_consumer_offset(context.broker.znodes, group, topic, index)
    except (KafkaError, CoordinationError) as error:
        answer.error_code = as_kafka_error(error, f"fetching an offset of {group}").code
        return answer
    if offset is None:
        answer.error_code = UnknownTopicOrPartition.code
    else:
        answer.committed_offset = offset
    return answer


def _check(group: str, topic: str, index: int, context: RequestContext) -> None:
    if not group or "/" in group or group in (".", ".."):
        raise _invalid(group)
    if context.broker.metadata.partition(topic, index) is None:
        raise UnknownTopicOrPartition(f"{topic}-{index} does not exist")


@contextmanager
def _as_group_id_error(group: str) -> Iterator[None]:
    """Name the group id as the fault of a path that the store refuses, such as one with a control character.
    Each store has rules of its own."""
    try:
        yield
    except BadArguments:
        raise _invalid(group) from None


def _invalid(group: str) -> InvalidGroupId:
    return InvalidGroupId(f"{cut(group)!r} cannot be a group id in the coordination store")
