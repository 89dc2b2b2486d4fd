"""AlterClientQuotas (49): change quotas of users, client ids and addresses. v1 is flexible.

Kafka calls the entries of request and response both `EntryData`; here the response has `EntryResult`.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, boolean, float64, int16, int32, string
from barnabas.protocol.schema.message import Message


class EntityData(Message):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Message):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Message):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, api=ApiKey.ALTER_CLIENT_QUOTAS):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class EntryResult(Message):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Message, api=ApiKey.ALTER_CLIENT_QUOTAS):
    throttle_time_ms: int = int32()
    entries: list[EntryResult] = array(EntryResult)
