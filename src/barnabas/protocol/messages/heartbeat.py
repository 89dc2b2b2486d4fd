"""Heartbeat (12): keep a member alive, and notify it of rebalances.

v3 has static members, v4 is flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import int16, int32, string
from barnabas.protocol.schema.message import Message


class HeartbeatRequest(Message, api=ApiKey.HEARTBEAT):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api=ApiKey.HEARTBEAT):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
