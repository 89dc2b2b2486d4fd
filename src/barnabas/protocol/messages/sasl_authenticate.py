"""SaslAuthenticate (36): one step of a SASL exchange.

v1 returns the lifetime of the session; v2 is flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import binary, int16, int64, string
from barnabas.protocol.schema.message import Message


class SaslAuthenticateRequest(Message, api=ApiKey.SASL_AUTHENTICATE):
    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Message, api=ApiKey.SASL_AUTHENTICATE):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    # 0: the session ends only with the connection.
    session_lifetime_ms: int = int64("1+", ignorable=True)
