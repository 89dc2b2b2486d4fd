"""StopReplica (5), v0-4. Gaps: the migration to KRaft.

The controller names the replicas that this broker stops, and those of them that it deletes.
"""

from __future__ import annotations

from barnabas.core.limits import ORDER_ELEMENTS_MAX
from barnabas.handlers.shared.controller_orders import carried_out
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.requests.services import Services


async def stop_replicas(request: StopReplicaRequest, broker: Services) -> StopReplicaResponse:
    broker.replicas.check_controller(request.controller_epoch, request.broker_epoch)
    return await carried_out(broker.replicas.stop_replicas, request)


async def handle_stop_replica(request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
    return await stop_replicas(request, context.broker)


STOP_REPLICA = Api(ApiKey.STOP_REPLICA, handle=handle_stop_replica, elements_max=ORDER_ELEMENTS_MAX)
