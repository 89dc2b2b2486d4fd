"""SaslHandshake (17): name the SASL mechanism.

After v0 raw tokens follow, after v1 SaslAuthenticate requests.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, int16, string
from barnabas.protocol.schema.message import Message


class SaslHandshakeRequest(Message, api=ApiKey.SASL_HANDSHAKE):
    mechanism: str = string()


class SaslHandshakeResponse(Message, api=ApiKey.SASL_HANDSHAKE):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
