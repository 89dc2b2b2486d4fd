"""Responses that refuse what a rule selects, with the error where Kafka's broker puts it.

A rule that names topics or partitions refuses these, and the response has the error of each. A rule that
names none refuses the request, and the response has the error at its top if it has a place for it there.

The gap: responses of ListPartitionReassignments, DescribeLogDirs and ConsumerGroupHeartbeat have no place for
the error of a topic. There a rule for a topic refuses the whole request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.core.errors import KafkaError
from barnabas.core.ids import NO_OFFSET
from barnabas.core.steps import run_to_end
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.schema.message import Message
from barnabas.requests.default_error_response import refusal, refusal_of_elements

Make = Callable[[Any, KafkaError, int], Any]


def refused(request: Message, error: KafkaError, version: int) -> Message:
    """Response that refuses a request as a whole."""
    # The broker itself answers a Heartbeat with NONE while it loads the group.
    own = None if isinstance(request, HeartbeatRequest) else _own(request, version)
    return _made(own or refusal, request, error, version)


def refused_elements(request: Message, error: KafkaError, version: int) -> Message:
    """Response with the error for each topic or partition of a request."""
    if isinstance(request, FetchRequest):
        return _refused_fetch(request, error)
    if isinstance(request, OffsetFetchRequest) and request.groups:
        return _refused_offsets(request, error)
    # The broker itself puts the error of ElectLeaders at the top too.
    own = None if isinstance(request, ElectLeadersRequest) else _own(request, version)
    return _made(own or refusal_of_elements, request, error, version)


def is_of_whole(answer: Message) -> bool:
    """Whether a refusal has its error at the top."""
    return bool(getattr(answer, "error_code", 0))


def _own(request: Message, version: int) -> Make | None:
    key = request.__schema__.api
    api = None if key is None else APIS.get(ApiKey(key), version)
    return None if api is None else api.refused


def _made(make: Make, request: Message, error: KafkaError, version: int) -> Message:
    answer = make(request, error, version)
    return answer if isinstance(answer, Message) else run_to_end(answer)


def _refused_fetch(request: FetchRequest, error: KafkaError) -> FetchResponse:
    """By default a Fetch has the error of the whole."""
    topics = []
    for topic in request.topics:
        rows = [
            PartitionData(
                partition_index=each.partition, error_code=error.code, high_watermark=NO_OFFSET, records=b""
            )
            for each in topic.partitions
        ]
        topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
    return FetchResponse(responses=topics)


def _refused_offsets(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    """By default an OffsetFetch of groups has an error for each group."""
    answer = OffsetFetchResponse()
    for group in request.groups:
        topics = []
        for topic in group.topics or ():
            partitions = [
                OffsetFetchResponsePartitions(
                    partition_index=each, committed_offset=NO_OFFSET, metadata="", error_code=error.code
                )
                for each in topic.partition_indexes
            ]
            topics.append(
                OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        answer.groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))
    return answer
