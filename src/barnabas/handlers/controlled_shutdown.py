"""ControlledShutdown (7), v0-3. Gaps: none. Between brokers only.

A broker that is about to stop asks the controller to move its leaderships first. It retries until it leads no
partition, or until `controlled.shutdown.max.retries` is used up.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


async def handle_controlled_shutdown(
    request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    controller = context.broker.controller
    try:
        remaining = await controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=partition) for topic, partition in remaining
        ]
    )


CONTROLLED_SHUTDOWN = Api(ApiKey.CONTROLLED_SHUTDOWN, handle=handle_controlled_shutdown)
