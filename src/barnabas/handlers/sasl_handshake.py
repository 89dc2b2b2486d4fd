"""SaslHandshake (17), v0-1. Gaps: none.

Where a connection authenticates, this is answered before any handler (`requests.authentication`). What
comes here is from a client that need not, or need not again.
"""

from __future__ import annotations

from barnabas.core.errors import IllegalSaslState
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


def handle_sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:  # noqa: ARG001 - whatever it names
    return SaslHandshakeResponse(error_code=IllegalSaslState.code)


SASL_HANDSHAKE = Api(ApiKey.SASL_HANDSHAKE, handle=handle_sasl_handshake)
