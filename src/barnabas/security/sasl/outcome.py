"""What a step of an authentication comes to.

An authentication is an object with a `step`: it takes the client's token and returns a `Challenge`,
upon which the client is to answer, or `Done`; or it raises `AuthenticationRefused`. It does no I/O,
and it is thrown away once it has raised or is done.

A refusal has two faces. `reason` is for the metrics and the log of the broker. The message is for the
client, and so for an attacker: it is the same whether the user, the password or the proof was wrong.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.security.principal import KafkaPrincipal


class Reason(Enum):
    BAD_CREDENTIALS = "bad_credentials"
    MALFORMED = "malformed"
    OTHER_AUTHORIZATION_ID = "other_authorization_id"
    BAD_TOKEN = "bad_token"  # noqa: S105 - a word for the metrics
    EXPIRED_TOKEN = "expired_token"  # noqa: S105 - likewise
    UNKNOWN_MECHANISM = "unknown_mechanism"
    ILLEGAL_STATE = "illegal_state"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    OTHER_PRINCIPAL = "other_principal"


class AuthenticationRefused(Exception):
    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Challenge(NamedTuple):
    token: bytes


class Done(NamedTuple):
    token: bytes
    principal: KafkaPrincipal
    expires_ms: int | None = None
    """On the wall clock: when what was shown ends, and the session with it."""
    by_delegation_token: bool = False


def check_size(token: bytes, bytes_max: int, mechanism: str) -> None:
    """Before anything else is done with what somebody sends who is not known yet: reading it costs time."""
    if len(token) > bytes_max:
        raise AuthenticationRefused(
            Reason.TOO_LARGE, f"Invalid SASL/{mechanism} message: it has more than {bytes_max} bytes"
        )


class Authentication(Protocol):
    def step(self, token: bytes) -> Challenge | Done: ...
