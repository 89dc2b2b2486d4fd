"""DescribeTopicPartitions (75), v0. Gaps: eligible leader replicas are not kept.

Partitions page by page, topics in the order of their names. A cursor names the first partition
of the next page; at most `max.request.partition.size.limit` partitions go into one.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata, TopicMetadata
from barnabas.core.errors import (
    InvalidRequest,
    InvalidTopicException,
    LeaderNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import INTERNAL_TOPICS, NO_LEADER, check_topic_name
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.authorized_operations import NOT_ASKED
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


def handle_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Sliced[DescribeTopicPartitionsResponse]:
    metadata = context.broker.metadata
    asked = {topic.name for topic in request.topics}
    if not _is_valid(request.cursor, asked):
        failed = yield from each(request.topics, lambda topic: _failed(topic.name, InvalidRequest.code))
        return DescribeTopicPartitionsResponse(topics=failed)
    start_topic, start_partition = _start(request.cursor)
    left = max(
        1, min(context.broker.config.max_request_partition_size_limit, request.response_partition_limit)
    )
    response = DescribeTopicPartitionsResponse()
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    for name in sorted(asked or metadata.topic_names()):
        yield
        if name < start_topic:
            continue
        if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, audited=bool(asked)):
            if asked:
                denied.append(_failed(name, TopicAuthorizationFailed.code, is_internal=False))
            continue
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = metadata.topic(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        first = start_partition if name == start_topic else 0
        page = topic.partitions[first : first + left]
        response.topics.append(_described(topic, page, metadata))
        left -= len(page)
        if first + len(page) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(page))
            break
    for described in response.topics:
        yield
        operations = context.authorized_operations(ResourceType.TOPIC, described.name or "")
        described.topic_authorized_operations = operations
    response.topics += denied
    return response


def _is_valid(cursor: Cursor | None, asked: set[str]) -> bool:
    """Whether the cursor points at a partition of a requested topic."""
    if cursor is None:
        return True
    return cursor.partition_index >= 0 and (not asked or cursor.topic_name in asked)


def _start(cursor: Cursor | None) -> tuple[str, int]:
    return ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
    except InvalidTopicException as error:
        return _failed(name, error.code)
    return _failed(name, UnknownTopicOrPartition.code)


def _failed(name: str, code: int, *, is_internal: bool | None = None) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS if is_internal is None else is_internal,
        topic_authorized_operations=NOT_ASKED,
    )


def _described(
    topic: TopicMetadata, page: Sequence[PartitionMetadata], metadata: MetadataCache
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=0 if partition.leader != NO_LEADER else LeaderNotAvailable.code,
                partition_index=partition.partition,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                # The schema allows null, but the Java admin client reads these lists without a check.
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=metadata.offline_replicas(partition),
            )
            for partition in page
        ],
    )


DESCRIBE_TOPIC_PARTITIONS = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, handle=handle_describe_topic_partitions)
