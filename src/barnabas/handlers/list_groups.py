"""ListGroups (16), v0-5. Gaps: none. A broker lists the groups it coordinates: clients ask all brokers."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordinator.group.describe import is_listed, listed_group
from barnabas.coordinator.group.state.registry import Group
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType


def handle_list_groups(request: ListGroupsRequest, context: RequestContext) -> Sliced[None]:
    states = frozenset((yield from each(request.states_filter, _folded)))
    types = frozenset((yield from each(request.types_filter, _folded)))
    sees_all = context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, audited=False)

    def may_see(group_id: str) -> bool:
        return sees_all or context.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id, audited=False)

    def listed(parts: Iterable[Iterable[Group]]) -> Sliced[ListGroupsResponse]:
        """The groups that the client may see; a broker may have a hundred thousand."""
        groups = []
        for part in parts:
            for group in part:
                yield
                if may_see(group.group_id) and is_listed(group, states, types):
                    groups.append(listed_group(group))
        return ListGroupsResponse(groups=groups)

    context.broker.groups.runtime.run_everywhere(
        lambda shard: shard.all_groups(),
        lambda parts: context.answer_in_slices(listed(parts)),
        context.fail,
    )


def _folded(name: str) -> str:
    return name.strip().lower()


LIST_GROUPS = Api(ApiKey.LIST_GROUPS, handle=handle_list_groups)
