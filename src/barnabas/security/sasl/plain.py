"""PLAIN (RFC 4616): user and password unprotected, so for encrypted listeners only.

A message is `authzid NUL user NUL password`. A client cannot act as another user: the authorization id is
empty or the user's own name.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping

from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.outcome import AuthenticationRefused, Done, Reason, check_size

NAME = "PLAIN"
USER_OPTION = "user_"
MESSAGE_BYTES_MAX = 8_192
_PARTS = 3


class PlainUsers:
    """Users and passwords. The latter are kept as digests under a key of this process. Their length is fixed
    for comparison in constant time, and a printed object shows no secret."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = os.urandom(32)
        self._digests = {name: self._digest(password) for name, password in passwords.items()}
        self._nobodys = os.urandom(32)

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> PlainUsers:
        """Users from `user_NAME="password"` of a login module."""
        return cls(
            {
                name.removeprefix(USER_OPTION): password
                for name, password in options.items()
                if name.startswith(USER_OPTION)
            }
        )

    def __len__(self) -> int:
        return len(self._digests)

    def accept(self, name: str, password: str) -> bool:
        digest = self._digests.get(name, self._nobodys)
        return hmac.compare_digest(digest, self._digest(password)) and name in self._digests

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), "sha256")


class PlainAuthentication:
    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def step(self, token: bytes) -> Done:
        check_size(token, MESSAGE_BYTES_MAX, NAME)
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise _malformed("it is not UTF-8") from None
        if len(parts) != _PARTS:
            raise _malformed("it does not have three parts")
        authorization_id, name, password = parts
        if not name or not password:
            raise _malformed("the user or the password is missing")
        if not self._users.accept(name, password):
            raise AuthenticationRefused(
                Reason.BAD_CREDENTIALS, "Authentication failed: Invalid username or password"
            )
        if authorization_id and authorization_id != name:
            raise AuthenticationRefused(
                Reason.OTHER_AUTHORIZATION_ID,
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        return Done(b"", KafkaPrincipal.user(name))


def _malformed(how: str) -> AuthenticationRefused:
    return AuthenticationRefused(Reason.MALFORMED, f"Invalid SASL/PLAIN response: {how}")
