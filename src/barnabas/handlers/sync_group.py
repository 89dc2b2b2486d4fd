"""SyncGroup (14), v0-5. Gaps: none.

The leader brings everybody's assignment, and everybody waits for its own: until the group's new generation
is stored.
"""

from __future__ import annotations

from barnabas.coordinator.decision import Waiter
from barnabas.coordinator.group.coordinator import check_group_id
from barnabas.core.errors import InconsistentGroupProtocol
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

VERSION_WITH_PROTOCOL = 5


def handle_sync_group(request: SyncGroupRequest, context: RequestContext) -> None:
    if context.api_version >= VERSION_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise InconsistentGroupProtocol("since version 5 a member names its protocol type and protocol")
    check_group_id(request.group_id)
    waiter: Waiter[SyncGroupResponse] = Waiter(context.respond, context.fail)
    context.broker.groups.run(
        request.group_id, lambda shard: shard.sync(request, waiter), waiter.respond, waiter.refuse
    )


SYNC_GROUP = Api(ApiKey.SYNC_GROUP, handle=handle_sync_group, elements_max=DECISION_ELEMENTS_MAX)
