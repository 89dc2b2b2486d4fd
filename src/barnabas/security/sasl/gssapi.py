"""GSSAPI (RFC 4752), the broker's side: Kerberos tokens until the context is complete, then the choice of a
security layer. As in Kafka no Kerberos layer is offered: TLS or nothing protects the connection.

A client cannot act as another user. The broker ignores an authorization id, as Kafka does, because Python's
clients send the name of the broker there.

`node.security.kerberos` supplies the context, with its keys and its replay cache; its steps may block.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.kerberos_names import KerberosNames, NoMatchingRule
from barnabas.security.sasl.outcome import AuthenticationRefused, Challenge, Done, Reason, check_size

NAME = "GSSAPI"
MESSAGE_BYTES_MAX = 65_536
"""Tickets with the groups of their user are large."""

_NO_LAYER = 1
_OFFER = bytes([_NO_LAYER, 0, 0, 0])
_CHOICE_BYTES_MIN = 4


class AcceptorContext(Protocol):
    """Each method raises AuthenticationRefused for an invalid token."""

    @property
    def is_complete(self) -> bool: ...
    @property
    def initiator(self) -> str:
        """The client's principal, once the context is complete: `alice@EXAMPLE.COM`."""
        ...

    def step(self, token: bytes) -> bytes: ...
    def wrap(self, message: bytes) -> bytes: ...
    def unwrap(self, message: bytes) -> bytes: ...


class _State(Enum):
    CONTEXT = "context"
    OFFER = "offer"
    CHOICE = "choice"


class GssapiAuthentication:
    def __init__(self, context: AcceptorContext, names: KerberosNames) -> None:
        self._context = context
        self._names = names
        self._state = _State.CONTEXT

    def step(self, token: bytes) -> Challenge | Done:
        check_size(token, MESSAGE_BYTES_MAX, NAME)
        if self._state is _State.CHOICE:
            return self._finish(self._context.unwrap(token))
        if self._state is _State.CONTEXT:
            answer = self._context.step(token)
            if not self._context.is_complete:
                return Challenge(answer)
            if answer:
                self._state = _State.OFFER
                return Challenge(answer)
        elif token:
            raise refused(Reason.MALFORMED)
        self._state = _State.CHOICE
        return Challenge(self._context.wrap(_OFFER))

    def _finish(self, choice: bytes) -> Done:
        if len(choice) < _CHOICE_BYTES_MIN or choice[0] != _NO_LAYER:
            raise refused(Reason.MALFORMED)
        try:
            name = self._names.short_name(self._context.initiator)
        except NoMatchingRule:
            raise refused(Reason.BAD_CREDENTIALS) from None
        return Done(b"", KafkaPrincipal.user(name))


def refused(reason: Reason) -> AuthenticationRefused:
    return AuthenticationRefused(
        reason,
        "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI",
    )
