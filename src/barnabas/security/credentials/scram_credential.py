"""SCRAM credentials (RFC 5802), which verify a password without containing it.

Kafka keeps them among the settings of a user, under the mechanism's name, as
`salt=…,stored_key=…,server_key=…,iterations=…`. Passwords are used unchanged, in UTF-8: neither Kafka nor its
clients prepare them (SASLprep), and a prepared one would not match.

A stolen credential does not allow a login, but it allows to pose as the broker and to guess passwords. So no
output shows it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from barnabas.security.identity.principal import KafkaPrincipal

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
SALT_BYTES = 24


class ScramMechanism(Enum):
    SHA_256 = ("SCRAM-SHA-256", 1, "sha256", 32)
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512", 64)

    def __init__(self, mechanism_name: str, number: int, digest: str, size: int) -> None:
        self.mechanism_name = mechanism_name
        self.number = number
        """Number of the mechanism in Kafka's protocol."""
        self.digest = digest
        self.size = size

    @classmethod
    def named(cls, name: str) -> ScramMechanism | None:
        return next((each for each in cls if each.mechanism_name == name), None)

    @classmethod
    def numbered(cls, number: int) -> ScramMechanism | None:
        return next((each for each in cls if each.number == number), None)

    def hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.digest)

    def hash(self, text: bytes) -> bytes:
        return hashlib.new(self.digest, text).digest()

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Derive the salted password. This takes milliseconds by design: never on the loop."""
        return hashlib.pbkdf2_hmac(self.digest, password.encode(), salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        client_key = mechanism.hmac(salted, b"Client Key")
        return cls(salt, mechanism.hash(client_key), mechanism.hmac(salted, b"Server Key"), iterations)

    @classmethod
    def derive(
        cls,
        mechanism: ScramMechanism,
        password: str,
        iterations: int = ITERATIONS_MIN,
        salt: bytes | None = None,
    ) -> ScramCredential:
        """Derive a credential from the password; takes milliseconds."""
        salt = os.urandom(SALT_BYTES) if salt is None else salt
        salted = mechanism.salted_password(password, salt, iterations)
        return cls.of_salted_password(mechanism, salted, salt, iterations)

    def encode(self) -> str:
        """The stored text; ValueError if no mechanism could read it."""
        text = (
            f"salt={_base64(self.salt)},stored_key={_base64(self.stored_key)},"
            f"server_key={_base64(self.server_key)},iterations={self.iterations}"
        )
        mechanisms = [each for each in ScramMechanism if each.size == len(self.stored_key)]
        self.decode(mechanisms[0] if mechanisms else ScramMechanism.SHA_256, text)
        return text

    @classmethod
    def decode(cls, mechanism: ScramMechanism, text: str) -> ScramCredential:
        """Parse the stored text; ValueError, without the text, if it is not one of this mechanism."""
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored_key, server_key = (
                base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            iterations = int(fields["iterations"])
        except (KeyError, ValueError, binascii.Error):
            raise ValueError("it is not a SCRAM credential") from None
        if len(stored_key) != mechanism.size or len(server_key) != mechanism.size or not salt:
            raise ValueError(f"its keys are not of {mechanism.mechanism_name}")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ValueError(f"it has {iterations} iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        return cls(salt, stored_key, server_key, iterations)


class KnownCredential(NamedTuple):
    """A credential, the principal of a client that proves it, and its expiry."""

    credential: ScramCredential
    principal: KafkaPrincipal
    expires_ms: int | None = None


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
