"""DeleteGroups (42), v0-3. Gaps: none. Only groups without members can be deleted, offsets and all."""

from __future__ import annotations

from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest


def handle_delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> None:
    context.broker.groups.delete_groups(request.groups_names, context.respond)


DELETE_GROUPS = Api(ApiKey.DELETE_GROUPS, versions=range(4), handle=handle_delete_groups)
