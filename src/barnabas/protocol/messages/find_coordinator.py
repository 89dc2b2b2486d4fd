"""FindCoordinator (10): the broker that coordinates a group or a transactional id.

v1 adds transactional ids (key type 1); v3 is flexible; v4 asks for several keys at once; v5 adds an error
code, v6 share groups.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, int8, int16, int32, string
from barnabas.protocol.schema.message import Message


class FindCoordinatorRequest(Message, api=ApiKey.FIND_COORDINATOR):
    key: str = string("0-3")
    # 0: group, 1: transaction, 2: share group.
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Message):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api=ApiKey.FIND_COORDINATOR):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
