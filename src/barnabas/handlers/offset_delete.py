"""OffsetDelete (47), v0. Gaps: none."""

from __future__ import annotations

from barnabas.coordinator.group.coordinator import check_group_id
from barnabas.core.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.offset_topics import merge
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


def handle_offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> Sliced[None]:
    check_group_id(request.group_id)
    known: list[OffsetDeleteRequestTopic] = []
    refused: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        yield
        found = context.broker.metadata.topic(topic.name)
        if not context.allows(Operation.READ, ResourceType.TOPIC, topic.name):
            refused.append((yield from _refused(topic, topic.partitions, TopicAuthorizationFailed.code)))
            continue
        if found is None:
            refused.append((yield from _refused(topic, topic.partitions, UnknownTopicOrPartition.code)))
            continue
        count = len(found.partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            refused.append((yield from _refused(topic, missing, UnknownTopicOrPartition.code)))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions or not missing:
            known.append(topic)
    request.topics = known

    def merged(response: OffsetDeleteResponse) -> Sliced[OffsetDeleteResponse]:
        yield from merge(response.topics, refused, lambda topic: topic.name)
        return response

    context.broker.groups.run(
        request.group_id,
        lambda shard: shard.offset_requests.delete(request),
        lambda response: context.answer_in_slices(merged(response)),
        context.fail,
    )


def _refused(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteRequestPartition], code: int
) -> Sliced[OffsetDeleteResponseTopic]:
    refused = yield from each(
        partitions,
        lambda asked: OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=code),
    )
    return OffsetDeleteResponseTopic(name=topic.name, partitions=refused)


OFFSET_DELETE = Api(ApiKey.OFFSET_DELETE, handle=handle_offset_delete, elements_max=DECISION_ELEMENTS_MAX)
