"""PushTelemetry (72): metrics of a client, as OpenTelemetry's MetricsData (KIP-714)."""

from __future__ import annotations

from barnabas.core.ids import Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import binary, boolean, int8, int16, int32, uuid
from barnabas.protocol.schema.message import Message


class PushTelemetryRequest(Message, api=ApiKey.PUSH_TELEMETRY):
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


class PushTelemetryResponse(Message, api=ApiKey.PUSH_TELEMETRY):
    throttle_time_ms: int = int32()
    error_code: int = int16()
