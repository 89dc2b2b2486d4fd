"""Outcomes of a SASL authentication step: challenge, done, or refused.

An authentication is an object with a `step`. It takes the client's token and returns a `Challenge`, which the
client must answer, or `Done`; or it raises `AuthenticationRefused`. It does no I/O, and ends once it has
raised or is done.

A refusal has two texts. `reason` is for the metrics and the log of the broker, with a `hint` for its operator
where the cause is known. The message is for the client, and so for an attacker: it is the same for a wrong
user, password or proof.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.security.identity.principal import KafkaPrincipal


class Reason(Enum):
    BAD_CREDENTIALS = "bad_credentials"
    DOUBLED_NONCE = "doubled_nonce"
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
    def __init__(self, reason: Reason, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.hint = hint


class Challenge(NamedTuple):
    token: bytes


class Done(NamedTuple):
    token: bytes
    principal: KafkaPrincipal
    expires_ms: int | None = None
    """Expiry of the credentials on the wall clock, which also ends the session."""
    by_delegation_token: bool = False


def check_size(token: bytes, bytes_max: int, mechanism: str) -> None:
    """Check the size before any other work on an unauthenticated message, because parsing costs time."""
    if len(token) > bytes_max:
        raise AuthenticationRefused(
            Reason.TOO_LARGE, f"Invalid SASL/{mechanism} message: it has more than {bytes_max} bytes"
        )


class Authentication(Protocol):
    def step(self, token: bytes) -> Challenge | Done: ...
