"""Connection handshake without I/O: ApiVersions, then SASL.

Both shells run the same conversation: it yields requests and receives answers (`advance`). It returns the
session lifetime that the broker grants. A connection that lives longer authenticates again before the
lifetime ends, and sends nothing else meanwhile (KIP-368).

A step may derive a key from a password, which takes milliseconds: run it outside of the event loop.
"""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple, TypeAlias

from barnabas.client.core.session import API_VERSIONS_FIRST_TRIED, Session
from barnabas.core.errors import SaslAuthenticationFailed, UnsupportedVersion, error_for
from barnabas.core.steps import Steps
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.schema.message import Message
from barnabas.security.sasl.client import Login

FOR_EVER: Final = 0
"""Lifetime of a session that lasts as long as its connection."""


class Ask(NamedTuple):
    request: Message
    response_class: type[Message]
    version: int


Conversation: TypeAlias = Steps[Ask, int]
"""Returns the session lifetime in milliseconds, or FOR_EVER."""


def open_session(session: Session[Any], login: Login | None) -> Conversation:
    version: int | None = API_VERSIONS_FIRST_TRIED
    while version is not None:
        answer = yield Ask(session.versions_request, ApiVersionsResponse, version)
        version = session.settle_versions(version, answer)
    return FOR_EVER if login is None else (yield from authenticate(session, login))


def authenticate(session: Session[Any], login: Login) -> Conversation:
    version = session.version_for(SaslHandshakeRequest)
    if not version:
        raise UnsupportedVersion(f"{session.peer} has only version 0 of SaslHandshake; version 1 is needed")
    handshake = yield Ask(SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse, version)
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms)
        raise error_for(
            handshake.error_code,
            f"{session.peer} does not offer SASL mechanism {login.mechanism} here; it offers {offered}"
            if offered
            else f"{session.peer} has a listener without SASL here",
        )
    exchange = login.begin(session.peer.host)
    token = next(exchange)
    version = session.version_for(SaslAuthenticateRequest)
    while True:
        answer = yield Ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)
        if answer.error_code:
            why = answer.error_message or "no reason given"
            raise error_for(answer.error_code, f"{session.peer} rejects the authentication: {why}")
        try:
            token = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            lifetime_ms: int = answer.session_lifetime_ms
            return max(lifetime_ms, FOR_EVER)
        except SaslAuthenticationFailed as error:
            raise SaslAuthenticationFailed(f"{session.peer}: {error.message}") from None


def authenticates_again_after_ms(lifetime_ms: int) -> float:
    """Delay before a re-authentication: early enough to finish in time, and spread over the clients."""
    return lifetime_ms * random.uniform(0.85, 0.95)  # noqa: S311 - jitter, not a secret
