"""ExpireDelegationToken (40), v0-2: shorten or end the life of a delegation token. v2 is flexible."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import binary, int16, int32, int64
from barnabas.protocol.schema import Message


class ExpireDelegationTokenRequest(Message, api=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="0-2"):
    hmac: bytes = binary()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, api=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="0-2"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
