"""ExpireDelegationToken (40), v1-2. Gaps: none; Kafka 4 removed v0."""

from __future__ import annotations

from barnabas.handlers.shared.token_requests import tokens_for
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.credentials.delegation_token import shortened


async def handle_expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    tokens = tokens_for(context)
    principal, now_ms = context.exchange.connection.principal, context.broker.clock.now_ms()
    token = tokens.find(bytes(request.hmac))
    left = shortened(token, principal, request.expiry_time_period_ms, now_ms)
    if left is None:
        await tokens.remove(token)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms)
    await tokens.put(left)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=left.expiry_ms)


EXPIRE_DELEGATION_TOKEN = Api(ApiKey.EXPIRE_DELEGATION_TOKEN, handle=handle_expire_delegation_token)
