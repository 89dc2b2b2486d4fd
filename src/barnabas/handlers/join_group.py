"""JoinGroup (11), v0-9. Gaps: none.

The response waits until the rebalance completes. The leader of the group then gets all members, the others
only the generation.
"""

from __future__ import annotations

from barnabas.coordinator.group.coordinator import check_group_id
from barnabas.core.errors import InvalidSessionTimeout, KafkaError
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

VERSION_WITH_NULL_PROTOCOL = 7


def handle_join_group(request: JoinGroupRequest, context: RequestContext) -> None:
    groups, settings, version = context.broker.groups, context.broker.groups.settings, context.api_version
    check_group_id(request.group_id)
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        raise InvalidSessionTimeout(
            f"a session timeout of {request.session_timeout_ms} ms is not between "
            "group.min.session.timeout.ms and group.max.session.timeout.ms"
        )
    caller = context.caller()
    groups.run_waiting(
        request.group_id,
        lambda shard, waiter: shard.join(request, caller, waiter),
        lambda response: context.respond(_as_version_knows(response, version)),
        context.fail,
    )


def _refused(request: JoinGroupRequest, error: KafkaError, version: int) -> JoinGroupResponse:
    response = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    return _as_version_knows(response, version)


def _as_version_knows(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if version < VERSION_WITH_NULL_PROTOCOL:
        response.protocol_name = response.protocol_name or ""
    elif response.error_code:
        response.protocol_name = None
    return response


JOIN_GROUP = Api(
    ApiKey.JOIN_GROUP, handle=handle_join_group, elements_max=DECISION_ELEMENTS_MAX, refused=_refused
)
