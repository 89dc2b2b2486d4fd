"""JoinGroup (11): join a consumer group, and wait for the other members.

v1 has a rebalance timeout; v4 makes a new member join twice, the second time with its assigned member id; v5
has static members; v6 is flexible; v8 gives a reason; v9 lets the leader skip the assignment.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, binary, boolean, int16, int32, string
from barnabas.protocol.schema.message import Message


class JoinGroupRequestProtocol(Message):
    name: str = string()
    metadata: bytes = binary()


class JoinGroupRequest(Message, api=ApiKey.JOIN_GROUP):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Message):
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = binary()


class JoinGroupResponse(Message, api=ApiKey.JOIN_GROUP):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    # Only for the leader of the group.
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
