"""RenewDelegationToken (39), v1-2. Gaps: none; Kafka 4 removed v0."""

from __future__ import annotations

from barnabas.handlers.shared.token_requests import tokens_for
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.credentials.delegation_token import renewed


async def handle_renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    tokens = tokens_for(context)
    principal, now_ms = context.exchange.connection.principal, context.broker.clock.now_ms()
    token = renewed(
        tokens.find(bytes(request.hmac)), principal, request.renew_period_ms, now_ms, tokens.times
    )
    await tokens.put(token)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expiry_ms)


RENEW_DELEGATION_TOKEN = Api(ApiKey.RENEW_DELEGATION_TOKEN, handle=handle_renew_delegation_token)
