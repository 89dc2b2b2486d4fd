"""DescribeGroups (15), v0-6. Gaps: none.

A group that does not exist is described as Dead. Since version 6 it is an error.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import GroupAuthorizationFailed, GroupIdNotFound, KafkaError
from barnabas.handlers.shared.chunked_queries import ask_in_chunks
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType

VERSION_WITH_NOT_FOUND = 6
DEAD = "Dead"


async def handle_describe_groups(
    request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    wanted = list(dict.fromkeys(request.groups))

    def describe(group_id: str, respond: Callable[[DescribedGroup], None]) -> None:
        def refuse(error: KafkaError) -> None:
            respond(DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id))

        if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            refuse(GroupAuthorizationFailed(""))
            return
        context.broker.groups.run(group_id, lambda shard: shard.describe(group_id), respond, refuse)

    groups = await ask_in_chunks(wanted, describe, context)
    for group in groups:
        await context.breathe()
        if group.error_code == GroupIdNotFound.code:
            group.group_state = DEAD
            if context.api_version < VERSION_WITH_NOT_FOUND:
                group.error_code = 0
        elif request.include_authorized_operations and not group.error_code:
            group.authorized_operations = context.authorized_operations(ResourceType.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=groups)


DESCRIBE_GROUPS = Api(ApiKey.DESCRIBE_GROUPS, handle=handle_describe_groups)
