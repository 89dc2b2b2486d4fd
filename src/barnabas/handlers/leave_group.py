"""LeaveGroup (13), v0-5. Gaps: none.

Up to version 2 one member leaves, and the response has one error. Since version 3 several members may leave,
each with its own error.
"""

from __future__ import annotations

from barnabas.coordinator.group.coordinator import check_group_id
from barnabas.core.errors import KafkaError, UnknownMemberId
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

VERSION_WITH_MEMBERS = 3


def handle_leave_group(request: LeaveGroupRequest, context: RequestContext) -> None:
    check_group_id(request.group_id)
    if context.api_version < VERSION_WITH_MEMBERS:
        request.members = [MemberIdentity(member_id=request.member_id)]
    context.broker.groups.run(
        request.group_id,
        lambda shard: shard.leave(request),
        lambda response: context.respond(_as_version_knows(response, context.api_version)),
        context.fail,
    )


def _refused(request: LeaveGroupRequest, error: KafkaError, version: int) -> Sliced[LeaveGroupResponse]:
    """UNKNOWN_MEMBER_ID for each member of a group that does not exist."""
    if not isinstance(error, UnknownMemberId):
        return LeaveGroupResponse(error_code=error.code)
    members = yield from each(
        request.members,
        lambda member: MemberResponse(
            member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error.code
        ),
    )
    return _as_version_knows(LeaveGroupResponse(members=members), version)


def _as_version_knows(response: LeaveGroupResponse, version: int) -> LeaveGroupResponse:
    if version >= VERSION_WITH_MEMBERS:
        return response
    return LeaveGroupResponse(error_code=response.members[0].error_code)


LEAVE_GROUP = Api(
    ApiKey.LEAVE_GROUP, handle=handle_leave_group, elements_max=DECISION_ELEMENTS_MAX, refused=_refused
)
