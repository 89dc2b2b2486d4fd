"""PushTelemetry (72), v0. Gaps: none.

The metrics of a client, which the broker keeps for its metrics page and for the console (KIP-714). Apache
Kafka passes them to a plug-in. Needs no right beyond authentication.
"""

from __future__ import annotations

from barnabas.core.steps import Sliced
from barnabas.handlers.shared.telemetry_reporter import reporter_of
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.telemetry.client_instances import Push


def handle_push_telemetry(
    request: PushTelemetryRequest, context: RequestContext
) -> Sliced[PushTelemetryResponse]:
    push = Push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        request.metrics,
    )
    bytes_max = context.broker.config.telemetry_max_bytes
    yield from context.broker.telemetry.push(push, reporter_of(context), bytes_max)
    return PushTelemetryResponse()


PUSH_TELEMETRY = Api(ApiKey.PUSH_TELEMETRY, handle=handle_push_telemetry)
