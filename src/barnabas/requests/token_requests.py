"""What the requests about delegation tokens have in common."""

from __future__ import annotations

from barnabas.cluster.delegation_tokens import DelegationTokens
from barnabas.core.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    InvalidRequest,
)
from barnabas.core.limits import PRINCIPAL_NAME_BYTES_MAX
from barnabas.requests.authentication import SaslSession
from barnabas.requests.context import RequestContext
from barnabas.security.principal import ANONYMOUS, USER, KafkaPrincipal


def tokens_for(context: RequestContext) -> DelegationTokens:
    """The tokens, if whoever asks may ask: not who is unknown, nor who shows a token himself."""
    connection = context.exchange.connection
    session = connection.session
    if (
        connection.security_protocol == "PLAINTEXT"
        or connection.principal == ANONYMOUS
        or (isinstance(session, SaslSession) and session.by_delegation_token)
    ):
        raise DelegationTokenRequestNotAllowed(
            "delegation tokens are for who has authenticated, and not by a token"
        )
    if context.broker.tokens is None:
        raise DelegationTokenAuthDisabled("delegation.token.secret.key is not set")
    return context.broker.tokens


def check_user(principal: KafkaPrincipal) -> None:
    if principal.kind != USER or not principal.name:
        raise InvalidPrincipalType(f"a renewer or owner of a token is a {USER}")
    if len(principal.name.encode()) > PRINCIPAL_NAME_BYTES_MAX:
        raise InvalidRequest(
            f"the name of a renewer or owner of a token has at most {PRINCIPAL_NAME_BYTES_MAX} bytes"
        )
