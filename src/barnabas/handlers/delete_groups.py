"""DeleteGroups (42), v0-3. Gaps: none. Only groups without members can be deleted, offsets and all."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import GroupAuthorizationFailed, KafkaError
from barnabas.handlers.shared.chunked_queries import ask_in_chunks
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType


async def handle_delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    def delete(group_id: str, respond: Callable[[DeletableGroupResult], None]) -> None:
        def refuse(error: KafkaError) -> None:
            respond(
                DeletableGroupResult(
                    group_id=group_id, error_code=error.code, error_message=error.message or None
                )
            )

        if not context.allows(Operation.DELETE, ResourceType.GROUP, group_id):
            refuse(GroupAuthorizationFailed(""))
            return
        context.broker.groups.run(
            group_id,
            lambda shard: shard.delete_group(group_id),
            lambda _: respond(DeletableGroupResult(group_id=group_id)),
            refuse,
        )

    wanted = list(dict.fromkeys(request.groups_names))
    return DeleteGroupsResponse(results=await ask_in_chunks(wanted, delete, context))


DELETE_GROUPS = Api(ApiKey.DELETE_GROUPS, handle=handle_delete_groups)
