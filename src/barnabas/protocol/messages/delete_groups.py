"""DeleteGroups (42): delete groups that have no members. v2 is flexible; v3 has error messages."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, int16, int32, string
from barnabas.protocol.schema.message import Message


class DeleteGroupsRequest(Message, api=ApiKey.DELETE_GROUPS):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Message):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Message, api=ApiKey.DELETE_GROUPS):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
