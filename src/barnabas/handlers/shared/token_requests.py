"""Checks that delegation token requests share."""

from __future__ import annotations

from barnabas.cluster.stores.delegation_tokens import DelegationTokens
from barnabas.core.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    InvalidRequest,
)
from barnabas.core.limits import PRINCIPAL_NAME_BYTES_MAX
from barnabas.requests.authentication import SaslSession
from barnabas.requests.context import RequestContext
from barnabas.security.identity.principal import ANONYMOUS, USER, KafkaPrincipal


def tokens_for(context: RequestContext) -> DelegationTokens:
    """The tokens, if the client may ask: neither anonymous clients nor clients that authenticated by a token
    may."""
    connection = context.exchange.connection
    session = connection.session
    if (
        connection.security_protocol == "PLAINTEXT"
        or connection.principal == ANONYMOUS
        or (isinstance(session, SaslSession) and session.by_delegation_token)
    ):
        raise DelegationTokenRequestNotAllowed(
            "delegation token requests need a connection that did not authenticate by a token"
        )
    if context.broker.tokens is None:
        raise DelegationTokenAuthDisabled("delegation.token.secret.key is not set on this broker")
    return context.broker.tokens


def check_user(principal: KafkaPrincipal) -> None:
    if principal.kind != USER or not principal.name:
        raise InvalidPrincipalType(f"a renewer or owner of a token is a {USER}")
    if len(principal.name.encode()) > PRINCIPAL_NAME_BYTES_MAX:
        raise InvalidRequest(
            f"the name of a renewer or owner of a token has at most {PRINCIPAL_NAME_BYTES_MAX} bytes"
        )
