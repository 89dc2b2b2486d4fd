"""SaslHandshake (17), v0-1. Gaps: none.

On a SASL listener `requests.authentication` answers before any handler. This handler answers clients that
need not authenticate, or not again.
"""

from __future__ import annotations

from barnabas.core.errors import IllegalSaslState
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


def handle_sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:  # noqa: ARG001 - refused for any mechanism
    return SaslHandshakeResponse(error_code=IllegalSaslState.code)


SASL_HANDSHAKE = Api(ApiKey.SASL_HANDSHAKE, handle=handle_sasl_handshake)
