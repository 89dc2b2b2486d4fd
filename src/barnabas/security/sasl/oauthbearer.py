"""OAUTHBEARER (RFC 7628), the broker's side: `n,[a=authzid],^Aauth=Bearer TOKEN^A[key=value^A…]^A`.

A client with a rejected token first gets the reason in JSON, as the RFC demands, and the exchange fails with
its next message.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.outcome import AuthenticationRefused, Challenge, Done, Reason, check_size

NAME = "OAUTHBEARER"
MESSAGE_BYTES_MAX = 20_480
"""A token of the maximum length (`bearer_tokens`), and the client's other fields."""

_FIRST = re.compile(
    rb"n,(?:a=(?P<authzid>(?:[^=,\0\x01]|=2C|=3D)+))?,\x01"
    rb"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01){1,32})\x01"
)
_BEARER = re.compile(r"bearer +(?P<token>[-_.A-Za-z0-9]+)", re.IGNORECASE)
_REFUSED = b'{"status":"invalid_token"}'


class BearerAuthentication:
    """`verify` returns user and expiry of a token, or raises AuthenticationRefused."""

    def __init__(self, verify: Callable[[str], tuple[str, int]]) -> None:
        self._verify = verify
        self._refusal: AuthenticationRefused | None = None

    def step(self, token: bytes) -> Challenge | Done:
        if self._refusal is not None:
            raise AuthenticationRefused(self._refusal.reason, _REFUSED.decode())
        check_size(token, MESSAGE_BYTES_MAX, NAME)
        match = _FIRST.fullmatch(token)
        if match is None:
            raise _malformed()
        pairs = [pair.partition("=")[::2] for pair in match["pairs"].decode("ascii").split("\x01")[:-1]]
        shown = [value for key, value in pairs if key.lower() == "auth"]
        bearer = _BEARER.fullmatch(shown[0]) if len(shown) == 1 else None
        if bearer is None:
            raise _malformed()
        try:
            name, expires_ms = self._verify(bearer["token"])
            _check_authorization_id(match["authzid"], name)
        except AuthenticationRefused as refusal:
            self._refusal = refusal
            return Challenge(_REFUSED)
        return Done(b"", KafkaPrincipal.user(name), expires_ms)


def _check_authorization_id(authorization_id: bytes | None, name: str) -> None:
    if authorization_id is None:
        return
    if authorization_id.replace(b"=2C", b",").replace(b"=3D", b"=") != name.encode():
        raise AuthenticationRefused(Reason.OTHER_AUTHORIZATION_ID, "")


def _malformed() -> AuthenticationRefused:
    return AuthenticationRefused(Reason.MALFORMED, "Invalid SASL/OAUTHBEARER message")
