"""DeleteGroups (42), v0-3. Gaps: none. Only groups without members can be deleted, offsets and all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.handlers.context import RequestContext
from barnabas.handlers.in_chunks import ask_in_chunks
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle_delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    def delete(groups: Sequence[str], respond: Callable[[list[DeletableGroupResult]], None]) -> None:
        context.broker.groups.delete_groups(groups, lambda response: respond(response.results))

    wanted = list(dict.fromkeys(request.groups_names))
    return DeleteGroupsResponse(results=await ask_in_chunks(wanted, delete, context))


DELETE_GROUPS = Api(ApiKey.DELETE_GROUPS, versions=range(4), handle=handle_delete_groups)
