"""Decoy SCRAM credentials for unknown users, which look like those of known users.

A SCRAM login shows a salt and a number of iterations before the client has proved anything. A known user
always has the same ones, on all brokers. An unknown user must too: otherwise a client that asks twice could
tell them apart. So a decoy salt is derived from the name and a secret of the cluster, not of one process.

The *shape* must reveal nothing either. The tools that make credentials differ. Kafka's salts are numbers of
130 bits in letters and digits, librdkafka's have 64 bytes, Barnabas's have 24. The administrator chooses the
iterations. A decoy has the shape of a known user, drawn by the name, each shape as often as users have it.
When a shape appears, disappears or becomes more frequent, as few names as possible change theirs (weighted
rendezvous hashing).
"""

from __future__ import annotations

import os
from collections import Counter
from math import log
from typing import Final, NamedTuple

from barnabas.security.credentials.scram_credential import (
    ITERATIONS_MIN,
    SALT_BYTES,
    KnownCredential,
    ScramCredential,
    ScramMechanism,
)
from barnabas.security.identity.principal import ANONYMOUS

SHAPES_MAX: Final = 16
"""Number of shapes to draw from, the most frequent ones: a draw costs as many digests."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_KAFKAS_SALT_BITS: Final = 130
_KAFKAS_LENGTHS: Final = range(23, 27)


class Shape(NamedTuple):
    """Visible properties of a credential, without the salt itself."""

    iterations: int = ITERATIONS_MIN
    salt_bytes: int | None = SALT_BYTES
    """None for a credential of Kafka's tools."""

    @classmethod
    def of(cls, credential: ScramCredential) -> Shape:
        salt = credential.salt
        is_kafkas = len(salt) in _KAFKAS_LENGTHS and all(each in _DIGITS.encode() for each in salt)
        return cls(credential.iterations, None if is_kafkas else len(salt))


class Decoys:
    """Decoys for one kind of credentials; `add` and `remove` track the shapes of the known ones."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._shapes: dict[ScramMechanism, Counter[Shape]] = {each: Counter() for each in ScramMechanism}

    def add(self, mechanism: ScramMechanism, credential: ScramCredential) -> None:
        self._shapes[mechanism][Shape.of(credential)] += 1

    def remove(self, mechanism: ScramMechanism, credential: ScramCredential) -> None:
        shapes, shape = self._shapes[mechanism], Shape.of(credential)
        shapes[shape] -= 1
        if not shapes[shape]:
            del shapes[shape]

    def of(self, mechanism: ScramMechanism, name: str) -> KnownCredential:
        """A credential whose keys no password proves."""
        shape = self._drawn(mechanism, name)
        salt = decoy_salt(mechanism, self._secret, name, shape)
        stored_key, server_key = os.urandom(mechanism.size), os.urandom(mechanism.size)
        return KnownCredential(ScramCredential(salt, stored_key, server_key, shape.iterations), ANONYMOUS)

    def _drawn(self, mechanism: ScramMechanism, name: str) -> Shape:
        shapes = self._shapes[mechanism]
        if len(shapes) <= 1:
            return next(iter(shapes), Shape())
        best, shape = max(
            (log(self._chance(mechanism, name, each)) / users, each)
            for each, users in shapes.most_common(SHAPES_MAX)
        )
        assert best <= 0, "a logarithm of at most one"
        return shape

    def _chance(self, mechanism: ScramMechanism, name: str, shape: Shape) -> float:
        """A number above 0, up to 1, that is always the same for a name and a shape."""
        digest = mechanism.hmac(self._secret, f"{shape.iterations},{shape.salt_bytes},{name}".encode())
        return (int.from_bytes(digest[:6]) + 1) / (1 << 48)


def decoy_salt(mechanism: ScramMechanism, secret: bytes, name: str, shape: Shape | None = None) -> bytes:
    """A salt that is always the same for a name, and looks random without the secret."""
    wanted = SALT_BYTES if shape is None else shape.salt_bytes
    if wanted is None:
        number = int.from_bytes(mechanism.hmac(secret, name.encode())) % (1 << _KAFKAS_SALT_BITS)
        return _in_digits(number)
    found = mechanism.hmac(secret, name.encode())
    while len(found) < wanted:
        found += mechanism.hmac(secret, found)
    return found[:wanted]


def _in_digits(number: int) -> bytes:
    """The number in base 36, as Java writes it."""
    text = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text.encode() or b"0"
