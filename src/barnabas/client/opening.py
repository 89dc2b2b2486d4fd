"""How a connection is opened, without the connection: settle the versions, then authenticate.

Both shells run the same conversation: it yields what to ask and is given the answer (`advance`). It ends
with how long the broker lets the authentication stand. Whoever keeps the connection longer authenticates
again on it, before that time is over, and sends nothing else meanwhile (KIP-368).

A step may derive a key from a password, which takes milliseconds: it belongs on no event loop.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeAlias

from barnabas.client.session import API_VERSIONS_FIRST_TRIED, Session
from barnabas.core.errors import SaslAuthenticationFailed, UnsupportedVersion, error_for
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.schema import Message
from barnabas.security.sasl.client import Login

FOR_EVER: Final = 0
"""The lifetime of a session that ends with its connection."""


class Ask(NamedTuple):
    request: Message
    response_class: type[Message]
    version: int


Conversation: TypeAlias = Generator[Ask, Any, int]
"""Ends with the lifetime of the session in milliseconds, or FOR_EVER."""


def advance(conversation: Conversation, answer: Message | None) -> Ask | int:
    """What to ask next, or the outcome."""
    try:
        return conversation.send(answer)
    except StopIteration as end:
        lifetime_ms: int = end.value
        return lifetime_ms


def open_session(session: Session[Any], login: Login | None) -> Conversation:
    version: int | None = API_VERSIONS_FIRST_TRIED
    while version is not None:
        answer = yield Ask(session.versions_request, ApiVersionsResponse, version)
        version = session.settle_versions(version, answer)
    return FOR_EVER if login is None else (yield from authenticate(session, login))


def authenticate(session: Session[Any], login: Login) -> Conversation:
    version = session.version_for(SaslHandshakeRequest)
    if not version:
        raise UnsupportedVersion(f"{session.peer} has no version of SaslHandshake that fits: it has 0")
    handshake = yield Ask(SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse, version)
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms)
        raise error_for(
            handshake.error_code,
            f"{session.peer} does not take SASL mechanism {login.mechanism} here; it takes {offered}"
            if offered
            else f"{session.peer} asks for no login by SASL here",
        )
    exchange = login.begin(session.peer.host)
    token = next(exchange)
    version = session.version_for(SaslAuthenticateRequest)
    while True:
        answer = yield Ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)
        if answer.error_code:
            why = answer.error_message or "it does not say why"
            raise error_for(answer.error_code, f"{session.peer} refuses the authentication: {why}")
        try:
            token = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            lifetime_ms: int = answer.session_lifetime_ms
            return max(lifetime_ms, FOR_EVER)
        except SaslAuthenticationFailed as error:
            raise SaslAuthenticationFailed(f"{session.peer}: {error.message}") from None


def authenticates_again_after_ms(lifetime_ms: int) -> float:
    """Early enough to be done in time, and not with everybody else."""
    return lifetime_ms * random.uniform(0.85, 0.95)  # noqa: S311 - spreads, and hides nothing
