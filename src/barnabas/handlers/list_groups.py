"""ListGroups (16), v0-5. Gaps: none. A broker lists what it coordinates: clients ask all."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType


def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> None:
    states = frozenset(state.strip().lower() for state in request.states_filter)
    types = frozenset(name.strip().lower() for name in request.types_filter)
    sees_all = context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, audited=False)

    def may_see(group_id: str) -> bool:
        return sees_all or context.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id, audited=False)

    context.broker.groups.runtime.run_everywhere(
        lambda shard: shard.list_groups(states, types),
        lambda parts: context.respond(
            ListGroupsResponse(groups=[group for part in parts for group in part if may_see(group.group_id)])
        ),
        context.fail,
    )


LIST_GROUPS = Api(ApiKey.LIST_GROUPS, handle=handle_list_groups)
