"""SaslAuthenticate (36), v0-2. Gaps: none.

As with SaslHandshake, only a client without a pending handshake gets here.
"""

from __future__ import annotations

from barnabas.core.errors import IllegalSaslState
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api


def handle_sasl_authenticate(
    request: SaslAuthenticateRequest,  # noqa: ARG001 - refused for any content
    context: RequestContext,  # noqa: ARG001 - refused for any client
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=IllegalSaslState.code,
        error_message="SaslAuthenticate request received after successful authentication",
    )


SASL_AUTHENTICATE = Api(ApiKey.SASL_AUTHENTICATE, handle=handle_sasl_authenticate)
