"""CreateDelegationToken (38), v1-3. Gaps: a token for somebody else (v3) is refused.

Version 0 is one that Kafka 4 no longer serves.
"""

from __future__ import annotations

import base64
import uuid

from barnabas.core.errors import DelegationTokenAuthorizationFailed
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.requests.token_requests import tokens_for, user_principal
from barnabas.security.credentials.delegation_token import created


async def handle_create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    tokens = tokens_for(context)
    requester = context.exchange.connection.principal
    if request.owner_principal_name:
        owner = user_principal(request.owner_principal_type or "", request.owner_principal_name)
        if owner != requester:
            raise DelegationTokenAuthorizationFailed("nobody may have tokens made for somebody else")
    renewers = tuple(user_principal(each.principal_type, each.principal_name) for each in request.renewers)
    token_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    now_ms = context.broker.clock.now_ms()
    token = created(token_id, requester, requester, renewers, request.max_lifetime_ms, now_ms, tokens.times)
    await tokens.put(token)
    return CreateDelegationTokenResponse(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=token.issue_ms,
        expiry_timestamp_ms=token.expiry_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token_id,
        hmac=tokens.secret_of(token),
    )


CREATE_DELEGATION_TOKEN = Api(
    ApiKey.CREATE_DELEGATION_TOKEN, versions=range(1, 4), handle=handle_create_delegation_token
)
