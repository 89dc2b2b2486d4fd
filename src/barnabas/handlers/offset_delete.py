"""OffsetDelete (47), v0. Gaps: none."""

from __future__ import annotations

from barnabas.coordinator.group.coordinator import check_group_id
from barnabas.core.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


def handle_offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> None:
    check_group_id(request.group_id)
    metadata = context.broker.metadata
    codes = {
        topic.name: UnknownTopicOrPartition.code for topic in request.topics if topic.name not in metadata
    }
    for topic in request.topics:
        if not context.allows(Operation.READ, ResourceType.TOPIC, topic.name):
            codes[topic.name] = TopicAuthorizationFailed.code
    refused = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=each.partition_index, error_code=codes[topic.name]
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
        if topic.name in codes
    ]
    request.topics = [topic for topic in request.topics if topic.name not in codes]

    def respond(response: OffsetDeleteResponse) -> None:
        response.topics.extend(refused)
        context.respond(response)

    context.broker.groups.run(
        request.group_id, lambda shard: shard.offset_requests.delete(request), respond, context.fail
    )


OFFSET_DELETE = Api(
    ApiKey.OFFSET_DELETE,
    versions=range(1),
    handle=handle_offset_delete,
    elements_max=DECISION_ELEMENTS_MAX,
)
