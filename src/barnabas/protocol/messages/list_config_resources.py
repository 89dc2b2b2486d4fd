"""ListConfigResources (74): names of the resources that have configs.

v0 lists those for client metrics only.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, int8, int16, int32, string
from barnabas.protocol.schema.message import Message


class ListConfigResourcesRequest(Message, api=ApiKey.LIST_CONFIG_RESOURCES):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Message):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api=ApiKey.LIST_CONFIG_RESOURCES):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
