"""ConsumerGroupDescribe (69), v0-1. Gaps: none."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.authorized_operations import GROUP_OPERATIONS
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.in_chunks import ask_in_chunks
from barnabas.requests.registry import Api


async def handle_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    wanted = list(dict.fromkeys(request.group_ids))

    def describe(group_id: str, respond: Callable[[DescribedGroup], None]) -> None:
        def refuse(error: KafkaError) -> None:
            respond(DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id))

        context.broker.groups.run(
            group_id, lambda shard: shard.describe_consumer_group(group_id), respond, refuse
        )

    groups = await ask_in_chunks(wanted, describe, context)
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


CONSUMER_GROUP_DESCRIBE = Api(
    ApiKey.CONSUMER_GROUP_DESCRIBE, versions=range(2), handle=handle_consumer_group_describe
)
