"""Heartbeat (12), v0-4. Gaps: none."""

from __future__ import annotations

from barnabas.coordinator.group.coordinator import check_group_id
from barnabas.core.errors import CoordinatorLoadInProgress, KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


def handle_heartbeat(request: HeartbeatRequest, context: RequestContext) -> None:
    check_group_id(request.group_id)
    context.broker.groups.run(
        request.group_id, lambda shard: shard.heartbeat(request), context.respond, context.fail
    )


def _refused(_: HeartbeatRequest, error: KafkaError, __: int) -> HeartbeatResponse:
    """Hide COORDINATOR_LOAD_IN_PROGRESS: members keep their assignment while the group is loaded."""
    is_loading = isinstance(error, CoordinatorLoadInProgress)
    return HeartbeatResponse(error_code=0 if is_loading else error.code)


HEARTBEAT = Api(ApiKey.HEARTBEAT, handle=handle_heartbeat, refused=_refused)
