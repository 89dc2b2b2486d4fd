"""GetTelemetrySubscriptions (71), v0. Gaps: none.

The metrics that the client is to push, and how often (KIP-714). Needs no right beyond authentication. A
client that no subscription matches gets an empty list, pushes nothing and asks again after the interval.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.steps import Sliced
from barnabas.handlers.shared.telemetry_reporter import reporter_of
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.records.compression import Codec
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api

ACCEPTED: Final = [int(codec) for codec in (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)]
"""Compression types, the preferred one first."""


def handle_get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> Sliced[GetTelemetrySubscriptionsResponse]:
    telemetry = context.broker.telemetry
    instance = yield from telemetry.subscribe(request.client_instance_id, reporter_of(context))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.demand.subscription_id,
        accepted_compression_types=list(ACCEPTED),
        push_interval_ms=instance.demand.interval_ms,
        telemetry_max_bytes=context.broker.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.demand.metrics),
    )


GET_TELEMETRY_SUBSCRIPTIONS = Api(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, handle=handle_get_telemetry_subscriptions
)
