"""ListConfigResources (74), v0-1: names of the resources that have settings.

v0 lists those for client metrics only.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string
from barnabas.protocol.schema import Message


class ListConfigResourcesRequest(Message, api=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1"):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Message):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
