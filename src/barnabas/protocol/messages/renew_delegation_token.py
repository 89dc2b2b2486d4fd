"""RenewDelegationToken (39), v0-2: prolong a delegation token. v2 is flexible."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import binary, int16, int32, int64
from barnabas.protocol.schema import Message


class RenewDelegationTokenRequest(Message, api=ApiKey.RENEW_DELEGATION_TOKEN, versions="0-2"):
    hmac: bytes = binary()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, api=ApiKey.RENEW_DELEGATION_TOKEN, versions="0-2"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
