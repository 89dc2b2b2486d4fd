"""SyncGroup (14), v0-5. Gaps: none.

The group's leader sends the assignment of every member. Each member waits for its own until the new
generation is stored.
"""

from __future__ import annotations

from barnabas.coordinator.group.coordinator import check_group_id
from barnabas.core.errors import InconsistentGroupProtocol
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

VERSION_WITH_PROTOCOL = 5


def handle_sync_group(request: SyncGroupRequest, context: RequestContext) -> None:
    if context.api_version >= VERSION_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise InconsistentGroupProtocol("SyncGroup v5 needs the protocol type and name")
    check_group_id(request.group_id)
    context.broker.groups.run_waiting(
        request.group_id, lambda shard, waiter: shard.sync(request, waiter), context.respond, context.fail
    )


SYNC_GROUP = Api(ApiKey.SYNC_GROUP, handle=handle_sync_group, elements_max=DECISION_ELEMENTS_MAX)
