"""Heartbeat (12), v0-4: a member says that it is alive and learns of rebalances.

v3 knows static members, v4 is flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import int16, int32, string
from barnabas.protocol.schema import Message


class HeartbeatRequest(Message, api=ApiKey.HEARTBEAT, versions="0-4"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api=ApiKey.HEARTBEAT, versions="0-4"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
