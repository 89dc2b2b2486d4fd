"""CreateDelegationToken (38), v1-3. Gaps: none; Kafka 4 removed v0.

A client with the right to create tokens for another user may do so (v3, KIP-373). The number of tokens is
bounded, and so are a token's renewers.
"""

from __future__ import annotations

import random

from barnabas.core.errors import InvalidRequest
from barnabas.core.ids import Uuid
from barnabas.core.limits import DELEGATION_TOKEN_RENEWERS_MAX
from barnabas.handlers.shared.token_requests import check_user, tokens_for
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType
from barnabas.security.credentials.delegation_token import created
from barnabas.security.identity.principal import KafkaPrincipal

_UNPREDICTABLE = random.SystemRandom()


async def handle_create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    tokens = tokens_for(context)
    if len(request.renewers) > DELEGATION_TOKEN_RENEWERS_MAX:
        raise InvalidRequest(
            f"{len(request.renewers)} renewers are too many: a token has at most"
            f" {DELEGATION_TOKEN_RENEWERS_MAX}"
        )
    requester = context.exchange.connection.principal
    owner = requester
    if request.owner_principal_name:
        owner = KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
        if owner != requester:
            context.require(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
            check_user(owner)
    renewers = tuple(KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers)
    for renewer in renewers:
        check_user(renewer)
    token_id = str(Uuid.generate(_UNPREDICTABLE))
    now_ms = context.broker.clock.now_ms()
    token = created(token_id, owner, requester, renewers, request.max_lifetime_ms, now_ms, tokens.times)
    await tokens.add(token)
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


CREATE_DELEGATION_TOKEN = Api(ApiKey.CREATE_DELEGATION_TOKEN, handle=handle_create_delegation_token)
