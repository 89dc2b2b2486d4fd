"""SaslHandshake (17), v0-1: name the SASL mechanism.

After v0 raw tokens follow, after v1 SaslAuthenticate requests.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, string
from barnabas.protocol.schema import Message


class SaslHandshakeRequest(Message, api=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Message, api=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
