"""DescribeTopicPartitions (75), v0. Gaps: eligible leader replicas are not kept, so they are null.

Partitions page by page, topics in the order of their names. A cursor names the first partition
of the next page; at most `max.request.partition.size.limit` partitions go into one.
"""

from __future__ import annotations

from barnabas.cluster.metadata_cache import PartitionMetadata, TopicMetadata
from barnabas.core.errors import (
    InvalidRequest,
    InvalidTopicException,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import INTERNAL_TOPICS, NO_LEADER, check_topic_name
from barnabas.handlers.authorized_operations import TOPIC_OPERATIONS
from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    topics = context.broker.metadata.topics
    asked = {topic.name for topic in request.topics}
    start_topic, start_partition = _start(request, asked)
    left = max(1, min(context.broker.settings.max_request_partition_size_limit, request.response_partition_limit))
    response = DescribeTopicPartitionsResponse()
    for name in sorted(asked or topics):
        if name < start_topic:
            continue
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        first = start_partition if name == start_topic else 0
        page = topic.partitions[first : first + left]
        response.topics.append(_described(topic, page))
        left -= len(page)
        if first + len(page) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(page))
            break
    return response


def _start(request: DescribeTopicPartitionsRequest, asked: set[str]) -> tuple[str, int]:
    cursor = request.cursor
    if cursor is None:
        return "", 0
    if asked and cursor.topic_name not in asked:
        raise InvalidRequest(f"the list of topics does not contain the cursor's topic {cursor.topic_name!r}")
    if cursor.partition_index < 0:
        raise InvalidRequest(f"the cursor's partition {cursor.partition_index} is not one")
    return cursor.topic_name, cursor.partition_index


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = UnknownTopicOrPartition.code
    try:
        check_topic_name(name)
    except InvalidTopicException as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described(topic: TopicMetadata, page: list[PartitionMetadata]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=0 if partition.leader != NO_LEADER else LeaderNotAvailable.code,
                partition_index=partition.partition,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=list(partition.offline_replicas),
            )
            for partition in page
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


DESCRIBE_TOPIC_PARTITIONS = Api(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=range(1), handle=handle_describe_topic_partitions
)
