"""FindCoordinator (10), v0-6. Gaps: share groups have no coordinator.

Since version 4 one request asks for many keys.
"""

from __future__ import annotations

from barnabas.core.errors import InvalidRequest
from barnabas.handlers.context import RequestContext
from barnabas.handlers.endpoints import own_endpoint
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP, _TRANSACTION = 0, 1


def handle_find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """One node coordinates every group and every transactional id."""
    node_id = context.broker.broker_id
    host, port = own_endpoint(context)
    known = request.key_type in (_GROUP, _TRANSACTION)
    if context.api_version < 4:
        if not known:
            return FindCoordinatorResponse(
                error_code=InvalidRequest.code, error_message=_unknown(request), node_id=-1, host="", port=-1
            )
        return FindCoordinatorResponse(error_message="NONE", node_id=node_id, host=host, port=port)
    if not known:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=-1,
                    host="",
                    port=-1,
                    error_code=InvalidRequest.code,
                    error_message=_unknown(request),
                )
                for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port) for key in request.coordinator_keys
        ]
    )


def _unknown(request: FindCoordinatorRequest) -> str:
    return f"coordinator type {request.key_type} has no coordinator here"


FIND_COORDINATOR = Api(ApiKey.FIND_COORDINATOR, versions=range(7), handle=handle_find_coordinator)
