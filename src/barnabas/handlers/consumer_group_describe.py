"""ConsumerGroupDescribe (69), v0-1. Gaps: none."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import GroupAuthorizationFailed, KafkaError, TopicAuthorizationFailed
from barnabas.handlers.shared.chunked_queries import ask_in_chunks
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


async def handle_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    wanted = list(dict.fromkeys(request.group_ids))

    def describe(group_id: str, respond: Callable[[DescribedGroup], None]) -> None:
        def refuse(error: KafkaError) -> None:
            respond(DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id))

        if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            refuse(GroupAuthorizationFailed(""))
            return
        context.broker.groups.run(
            group_id, lambda shard: shard.describe_consumer_group(group_id), respond, refuse
        )

    groups = await ask_in_chunks(wanted, describe, context)
    if not context.broker.authorizer.allows_everything:
        groups = [await _without_secrets(group, context) for group in groups]
    if request.include_authorized_operations:
        for group in groups:
            await context.breathe()
            if not group.error_code:
                group.authorized_operations = context.authorized_operations(
                    ResourceType.GROUP, group.group_id
                )
    return ConsumerGroupDescribeResponse(groups=groups)


async def _without_secrets(group: DescribedGroup, context: RequestContext) -> DescribedGroup:
    """Replace a group that has a topic which the client may not describe by an error."""
    topics = {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
    for topic in topics:
        await context.breathe()
        if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            return DescribedGroup(
                error_code=TopicAuthorizationFailed.code,
                error_message="the group has topics that the client may not describe",
                group_id=group.group_id,
            )
    return group


CONSUMER_GROUP_DESCRIBE = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, handle=handle_consumer_group_describe)
