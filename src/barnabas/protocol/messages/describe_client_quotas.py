"""DescribeClientQuotas (48): quotas of users, client ids and addresses. v1 is flexible."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, boolean, float64, int8, int16, int32, string
from barnabas.protocol.schema.message import Message


class ComponentData(Message):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Message, api=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Message):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Message):
    key: str = string()
    value: float = float64()


class EntryData(Message):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message, api=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
