"""JoinGroup (11), v0-9. Gaps: none.

The answer comes when the rebalance completes: then the leader of the group gets all members, the others
only the generation.
"""

from __future__ import annotations

from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.handlers.context import RequestContext
from barnabas.handlers.group_callers import caller_of
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

VERSION_WITH_NULL_PROTOCOL = 7


def handle_join_group(request: JoinGroupRequest, context: RequestContext) -> None:
    def respond(response: JoinGroupResponse) -> None:
        if context.api_version < VERSION_WITH_NULL_PROTOCOL:
            response.protocol_name = response.protocol_name or ""
        elif response.error_code:
            response.protocol_name = None
        context.respond(response)

    context.broker.groups.join(request, caller_of(context), respond)


JOIN_GROUP = Api(
    ApiKey.JOIN_GROUP,
    versions=range(10),
    handle=handle_join_group,
    elements_max=DECISION_ELEMENTS_MAX,
)
