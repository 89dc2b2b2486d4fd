"""ListGroups (16), v0-5. Gaps: none. A broker lists what it coordinates: clients ask all."""

from __future__ import annotations

from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_groups import ListGroupsRequest


def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> None:
    context.broker.groups.list_groups(request, context.respond)


LIST_GROUPS = Api(ApiKey.LIST_GROUPS, versions=range(6), handle=handle_list_groups)
