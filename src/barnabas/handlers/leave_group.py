"""LeaveGroup (13), v0-5. Gaps: none.

Up to version 2 one member leaves, and the answer has one error; since version 3 many may leave, each with
its own.
"""

from __future__ import annotations

from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

VERSION_WITH_MEMBERS = 3


def handle_leave_group(request: LeaveGroupRequest, context: RequestContext) -> None:
    if context.api_version >= VERSION_WITH_MEMBERS:
        context.broker.groups.leave(request, context.respond)
        return

    def respond(response: LeaveGroupResponse) -> None:
        code = response.error_code or (response.members[0].error_code if response.members else 0)
        context.respond(LeaveGroupResponse(error_code=code))

    request.members = [MemberIdentity(member_id=request.member_id)]
    context.broker.groups.leave(request, respond)


LEAVE_GROUP = Api(
    ApiKey.LEAVE_GROUP,
    versions=range(6),
    handle=handle_leave_group,
    elements_max=DECISION_ELEMENTS_MAX,
)
