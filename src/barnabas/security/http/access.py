"""Access control of HTTP interfaces: the metrics page of a broker, the pipeline service.

A client authenticates by name and password (`Authorization: Basic`), by a token (`Bearer`), or by a
certificate, which the handshake has checked. An authenticated client may do everything at that address.

Users and tokens are lines of `name=secret` in files, which are read again when they change; an unusable file
changes nothing. A secret is plain, or a value that verifies it: a SCRAM credential (`barnabas user hash`) for
a password, `sha256:` and the hexadecimal digest for a token. Memory holds only the latter. The check of a
password takes milliseconds by design, for an unknown name as well.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from barnabas.config.listeners import for_listener
from barnabas.config.properties import read_properties
from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file
from barnabas.security.credentials.decoys import Decoys
from barnabas.security.credentials.scram_credential import ScramCredential, ScramMechanism
from barnabas.security.identity.principal import ANONYMOUS

logger = logging.getLogger(__name__)

FILE_BYTES_MAX = 1 << 20
ENTRIES_MAX = 1_000
CREDENTIAL_MARK = "scram-sha-256:"
DIGEST_MARK = "sha256:"
_MECHANISM = ScramMechanism.SHA_256

T = TypeVar("T")


class HttpAccess:
    """Authenticates clients. `accept` may take milliseconds: not on the loop."""

    def __init__(self, users: Path | None, tokens: Path | None, *, by_certificate: bool = False) -> None:
        self._users = None if users is None else _File(users, _credential)
        self._tokens = None if tokens is None else _File(tokens, _token_digest)
        self._by_certificate = by_certificate
        self._decoys = Decoys(os.urandom(32))
        self._users_of_decoys: Mapping[str, ScramCredential] = {}

    @classmethod
    def of(cls, values: Mapping[str, Any], listener_name: str, *, by_certificate: bool) -> HttpAccess:
        """Access by the settings of a listener; INVALID_CONFIG if one of its files is unusable."""
        users, tokens = (
            for_listener(values, listener_name, key) for key in ("http.users.file", "http.tokens.file")
        )
        return cls(
            Path(users) if users else None, Path(tokens) if tokens else None, by_certificate=by_certificate
        )

    @property
    def is_open(self) -> bool:
        """Whether every client is let in."""
        return not self.schemes and not self._by_certificate

    @property
    def schemes(self) -> list[str]:
        """Authentication schemes, as `WWW-Authenticate` lists them."""
        found = [] if self._users is None else ['Basic realm="barnabas", charset="UTF-8"']
        return found if self._tokens is None else [*found, 'Bearer realm="barnabas"']

    def accept(self, authorization: str | None, *, certificate_of: str | None) -> str | None:
        """The name of the client; None if it is unknown. The handshake has checked a certificate."""
        if self.is_open:
            return ANONYMOUS.name
        if certificate_of is not None and self._by_certificate:
            return certificate_of
        scheme, _, shown = (authorization or "").partition(" ")
        match scheme.lower():
            case "basic" if self._users is not None:
                return self._by_password(self._users.current(), shown.strip())
            case "bearer" if self._tokens is not None:
                return _by_token(self._tokens.current(), shown.strip())
        return None

    def _by_password(self, users: Mapping[str, ScramCredential], shown: str) -> str | None:
        try:
            name, colon, password = base64.b64decode(shown, validate=True).decode().partition(":")
        except ValueError:  # neither Base64 nor UTF-8
            return None
        decoy = self._decoy(users, name)  # made for every name, so that the time reveals nothing
        known = users.get(name) or decoy
        given = ScramCredential.derive(_MECHANISM, password, known.iterations, known.salt)
        is_right = hmac.compare_digest(given.stored_key, known.stored_key)
        return name if is_right and colon and name in users else None

    def _decoy(self, users: Mapping[str, ScramCredential], name: str) -> ScramCredential:
        """A credential whose check takes as long as that of a known user."""
        if users is not self._users_of_decoys:
            decoys = Decoys(os.urandom(32))
            for credential in users.values():
                decoys.add(_MECHANISM, credential)
            self._decoys, self._users_of_decoys = decoys, users
        return self._decoys.of(_MECHANISM, name).credential


def hashed_password(password: str, iterations: int) -> str:
    """Text for a users file that verifies the password."""
    return CREDENTIAL_MARK + ScramCredential.derive(_MECHANISM, password, iterations).encode()


def _by_token(tokens: Mapping[str, bytes], shown: str) -> str | None:
    digest = hashlib.sha256(shown.encode()).digest()
    found = [name for name, known in tokens.items() if hmac.compare_digest(known, digest)]
    return found[0] if found else None


def _credential(secret: str) -> ScramCredential:
    if secret.startswith(CREDENTIAL_MARK):
        return ScramCredential.decode(_MECHANISM, secret.removeprefix(CREDENTIAL_MARK))
    return ScramCredential.derive(_MECHANISM, secret)


def _token_digest(secret: str) -> bytes:
    if not secret.startswith(DIGEST_MARK):
        return hashlib.sha256(secret.encode()).digest()
    digest = bytes.fromhex(secret.removeprefix(DIGEST_MARK))
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError("it is not a digest by SHA-256")
    return digest


class _File(Generic[T]):
    """Lines of `name=secret`, as they are in the file now; no error shows a secret."""

    def __init__(self, path: Path, parse: Callable[[str], T]) -> None:
        self._path = path
        self._parse = parse
        self._seen = self._stamp()
        self._entries = self._read()

    def current(self) -> Mapping[str, T]:
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._entries = self._read()
            except InvalidConfig as error:
                logger.error("HTTP access: the previous users and tokens stay in effect: %s", error.message)
        return self._entries

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def _read(self) -> dict[str, T]:
        try:
            data = read_regular_file(self._path, FILE_BYTES_MAX + 1)
            found = read_properties(data.decode())
        except OSError as error:
            raise InvalidConfig(f"{self._path} cannot be read: {error.strerror}") from None
        except ValueError:  # not UTF-8, or an escape that is none
            raise InvalidConfig(f"{self._path} is not a file of properties") from None
        if len(data) > FILE_BYTES_MAX or len(found) > ENTRIES_MAX:
            raise InvalidConfig(f"{self._path} has more than {ENTRIES_MAX} lines")
        if not found:
            raise InvalidConfig(f"{self._path} names no user; its lines are name=secret")
        return {name: self._parsed(name, secret) for name, secret in found.items()}

    def _parsed(self, name: str, secret: str) -> T:
        try:
            if not secret:
                raise ValueError("it is empty")
            return self._parse(secret)
        except ValueError as error:
            reason = str(error) if str(error).startswith("it ") else "it cannot be read"
            raise InvalidConfig(f"{self._path}: the secret of {name} is unusable: {reason}") from None
