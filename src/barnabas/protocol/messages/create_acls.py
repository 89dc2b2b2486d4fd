"""CreateAcls (30): create ACLs.

v1 has prefixed patterns; v2 is flexible; v3 has user resources.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, int8, int16, int32, string
from barnabas.protocol.schema.message import Message


class AclCreation(Message):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, api=ApiKey.CREATE_ACLS):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Message):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Message, api=ApiKey.CREATE_ACLS):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
