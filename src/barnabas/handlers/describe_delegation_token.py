"""DescribeDelegationToken (41), v1-3. Gaps: none; Kafka 4 removed v0.

The response holds the tokens' secrets. A user sees the tokens that it owns, requested or may renew. Other
tokens need a right to that token or to its owner's tokens (KIP-373).
"""

from __future__ import annotations

from barnabas.cluster.stores.delegation_tokens import DelegationTokens
from barnabas.core.steps import Sliced
from barnabas.handlers.shared.token_requests import tokens_for
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.vocabulary import Operation, ResourceType
from barnabas.security.credentials.delegation_token import DelegationToken
from barnabas.security.identity.principal import KafkaPrincipal


def handle_describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> Sliced[DescribeDelegationTokenResponse]:
    tokens = tokens_for(context)
    principal = context.exchange.connection.principal
    owners: set[KafkaPrincipal] | None = None
    if request.owners is not None:
        owners = set()
        for each in request.owners:
            owners.add(KafkaPrincipal(each.principal_type, each.principal_name))
            yield
    shown = []
    for token in tokens:
        if (owners is None or token.is_known_to_any(owners)) and (
            token.is_known_to(principal) or _may_describe(token, context)
        ):
            shown.append(_described(token, tokens))
        yield
    return DescribeDelegationTokenResponse(tokens=shown)


def _may_describe(token: DelegationToken, context: RequestContext) -> bool:
    return context.allows(
        Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, audited=False
    ) or context.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), audited=False)


def _described(token: DelegationToken, tokens: DelegationTokens) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.secret_of(token),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.kind, principal_name=each.name)
            for each in token.renewers
        ],
    )


DESCRIBE_DELEGATION_TOKEN = Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, handle=handle_describe_delegation_token)
