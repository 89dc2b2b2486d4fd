"""Client side of SASL: PLAIN, SCRAM and OAUTHBEARER, without I/O. GSSAPI is `client.security.kerberos`.

An authentication is a generator: it yields messages to send and receives the broker's answers. It ends when
the broker has proved what the mechanism lets it prove. A wrong proof raises SASL_AUTHENTICATION_FAILED: a
client that accepts any answer could be read by an impostor of the broker.

A step may derive a key, which takes milliseconds: not on an event loop.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from barnabas.core.errors import SaslAuthenticationFailed

Exchange: TypeAlias = Generator[bytes, bytes, None]

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
SCRAM_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = (PLAIN, *SCRAM_DIGESTS, OAUTHBEARER, GSSAPI)

ITERATIONS_MIN: Final = 4_096
"""RFC 5802: fewer iterations would make the password easy to guess."""
ITERATIONS_MAX: Final = 1_000_000
"""More iterations would keep this process busy."""

_FIRST: Final = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<rounds>\d{1,9})(?:,.*)?"
)
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")


@dataclass(frozen=True, slots=True)
class Login:
    """Maker of authentications, one per connection."""

    mechanism: str
    begin: Callable[[str], Exchange] = field(repr=False)
    """Authentication with the broker at that host."""


def plain(user: str, password: str) -> Exchange:
    """RFC 4616, without an authorization id: the user acts as itself."""
    _check_text(user, "user name")
    _check_text(password, "password")
    yield f"\0{user}\0{password}".encode()


def scram(
    mechanism: str, user: str, password: str, *, extensions: Mapping[str, str] | None = None, nonce: str = ""
) -> Exchange:
    """RFC 5802 and 7677, without channel binding, as in Kafka. The extension `tokenauth` marks the user as
    the id of a delegation token."""
    digest = SCRAM_DIGESTS[mechanism]
    nonce = nonce or secrets.token_urlsafe(24)
    name = user.replace("=", "=3D").replace(",", "=2C")
    bare = ",".join(
        (f"n={name}", f"r={nonce}", *(f"{key}={value}" for key, value in (extensions or {}).items()))
    )
    first = (yield f"n,,{bare}".encode()).decode(errors="replace")
    challenge = _FIRST.fullmatch(first)
    if challenge is None:
        raise _refused(mechanism, first)
    iterations = int(challenge["rounds"])
    if not challenge["nonce"].startswith(nonce) or challenge["nonce"] == nonce:
        raise SaslAuthenticationFailed(f"{mechanism}: the broker's nonce does not continue ours")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise SaslAuthenticationFailed(f"{mechanism}: the broker asks for {iterations} iterations")
    salted = hashlib.pbkdf2_hmac(
        digest, password.encode(), _decoded(mechanism, challenge["salt"]), iterations
    )
    without_proof = f"c=biws,r={challenge['nonce']}"
    signed = f"{bare},{first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    verifier, _, _ = final.removeprefix("v=").partition(",")
    if not final.startswith("v="):
        raise _refused(mechanism, final)
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(_decoded(mechanism, verifier), expected):
        raise SaslAuthenticationFailed(f"{mechanism}: the broker does not know the password either")


def oauthbearer(token: str, extensions: Mapping[str, str] | None = None) -> Exchange:
    """RFC 7628. A broker that rejects the token answers with JSON, and fails after the client's next
    message."""
    if not _TOKEN.fullmatch(token):
        raise SaslAuthenticationFailed(
            "OAUTHBEARER: the token is not one: it has other characters than a JWT"
        )
    pairs = {"auth": f"Bearer {token}", **(extensions or {})}
    refusal = yield (
        "n,,\x01" + "".join(f"{key}={value}\x01" for key, value in pairs.items()) + "\x01"
    ).encode()
    if refusal:
        yield b"\x01"
        raise SaslAuthenticationFailed(f"OAUTHBEARER: the broker refuses the token: {_status(refusal)}")


def _check_text(text: str, what: str) -> None:
    if not text or "\0" in text:
        raise SaslAuthenticationFailed(f"PLAIN: the {what} is empty or contains NUL")


def _decoded(mechanism: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslAuthenticationFailed(f"{mechanism}: the broker's answer makes no sense") from None


def _refused(mechanism: str, answer: str) -> SaslAuthenticationFailed:
    """RFC 5802 has a few words for the reason; other text is not repeated."""
    said = re.fullmatch(r"e=([a-z-]{1,40})", answer)
    return SaslAuthenticationFailed(
        f"{mechanism}: the broker says {said[1]}"
        if said
        else f"{mechanism}: the broker's answer makes no sense"
    )


def _status(refusal: bytes) -> str:
    try:
        answer = json.loads(refusal)
    except ValueError:
        return "no reason is given"
    status = answer.get("status") if isinstance(answer, dict) else None
    return status if isinstance(status, str) and status.isprintable() else "no reason is given"
