"""OffsetDelete (47), v0. Gaps: none."""

from __future__ import annotations

from barnabas.coordinator.group.coordinator import check_group_id
from barnabas.core.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.offset_topics import merge
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


def handle_offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> None:
    check_group_id(request.group_id)
    known: list[OffsetDeleteRequestTopic] = []
    refused: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        found = context.broker.metadata.topic(topic.name)
        if not context.allows(Operation.READ, ResourceType.TOPIC, topic.name):
            refused.append(_refused(topic, topic.partitions, TopicAuthorizationFailed.code))
            continue
        if found is None:
            refused.append(_refused(topic, topic.partitions, UnknownTopicOrPartition.code))
            continue
        count = len(found.partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            refused.append(_refused(topic, missing, UnknownTopicOrPartition.code))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions or not missing:
            known.append(topic)
    request.topics = known

    def respond(response: OffsetDeleteResponse) -> None:
        merge(response.topics, refused, lambda topic: topic.name)
        context.respond(response)

    context.broker.groups.run(
        request.group_id, lambda shard: shard.offset_requests.delete(request), respond, context.fail
    )


def _refused(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteRequestPartition], code: int
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


OFFSET_DELETE = Api(ApiKey.OFFSET_DELETE, handle=handle_offset_delete, elements_max=DECISION_ELEMENTS_MAX)
