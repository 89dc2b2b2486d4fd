"""GetTelemetrySubscriptions (71): the metrics that a client is asked to push, and how often (KIP-714)."""

from __future__ import annotations

from barnabas.core.ids import Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, boolean, int8, int16, int32, string, uuid
from barnabas.protocol.schema.message import Message


class GetTelemetrySubscriptionsRequest(Message, api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
    client_instance_id: Uuid = uuid()


class GetTelemetrySubscriptionsResponse(Message, api=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
