"""ConsumerGroupDescribe (69), v0-1. Gaps: none."""

from __future__ import annotations

from barnabas.handlers.authorized_operations import GROUP_OPERATIONS
from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle_consumer_group_describe(request: ConsumerGroupDescribeRequest, context: RequestContext) -> None:
    def respond(groups: list[DescribedGroup]) -> None:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        context.respond(ConsumerGroupDescribeResponse(groups=groups))

    context.broker.groups.describe_consumer_groups(request.group_ids, respond)


CONSUMER_GROUP_DESCRIBE = Api(
    ApiKey.CONSUMER_GROUP_DESCRIBE, versions=range(2), handle=handle_consumer_group_describe
)
