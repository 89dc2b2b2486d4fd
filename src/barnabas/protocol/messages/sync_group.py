"""SyncGroup (14): the leader of a group sends the assignments, and each member gets its own.

v3 has static members; v4 is flexible; v5 repeats protocol type and name, to be checked.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, binary, int16, int32, string
from barnabas.protocol.schema.message import Message


class SyncGroupRequestAssignment(Message):
    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Message, api=ApiKey.SYNC_GROUP):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api=ApiKey.SYNC_GROUP):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = binary()
