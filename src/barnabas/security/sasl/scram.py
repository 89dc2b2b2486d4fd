"""SCRAM (RFC 5802, RFC 7677), the broker's side: the password is never sent, and both sides prove it.

    client: n,,n=user,r=CLIENT                        (`,tokenauth=true`: the user is a delegation token)
    broker: r=CLIENT+SERVER,s=salt,i=iterations
    client: c=biws,r=CLIENT+SERVER,p=proof
    broker: v=signature

The broker compares the returned nonce as a whole with the one it sent; otherwise a proof could be replayed
from another exchange. An unknown user takes the same path with a decoy, and fails where a wrong password
fails. There is no channel binding, as in Kafka.

librdkafka before 2.6.1 returns CLIENT+CLIENT+SERVER, which Apache Kafka 4 refuses, and so does this broker.
The client reports invalid credentials, so the log of the broker names the cause.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable
from typing import NamedTuple

from barnabas.security.credentials.scram_credential import KnownCredential, ScramMechanism
from barnabas.security.sasl.outcome import AuthenticationRefused, Challenge, Done, Reason, check_size

TOKEN_EXTENSION = "tokenauth"  # noqa: S105 - the name of an extension

MESSAGE_BYTES_MAX = 4_096

_OLD_LIBRDKAFKA = (
    "the client repeats its nonce, as kcat and other clients with librdkafka before 2.6.1 do; upgrade it"
)

_SASL_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+){0,16}"
_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>{_EXTENSIONS}))"
)
_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+){_EXTENSIONS})"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class CredentialLookup(NamedTuple):
    """Both lookups return a credential for every name: a decoy for an unknown one."""

    of_user: Callable[[ScramMechanism, str], KnownCredential]
    of_token: Callable[[ScramMechanism, str], KnownCredential]


class ScramAuthentication:
    def __init__(self, mechanism: ScramMechanism, lookup: CredentialLookup, nonce: str = "") -> None:
        self._mechanism = mechanism
        self._lookup = lookup
        self._own_nonce = nonce or secrets.token_urlsafe(24)
        self._client_nonce = ""
        self._nonce = ""
        self._binding = ""
        self._messages = ""
        self._known: KnownCredential | None = None
        self._by_token = False

    def step(self, token: bytes) -> Challenge | Done:
        check_size(token, MESSAGE_BYTES_MAX, "SCRAM")
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise self._malformed() from None
        return self._first(message) if self._known is None else self._final(message, self._known)

    def _first(self, message: str) -> Challenge:
        match = _FIRST.fullmatch(message)
        if match is None:
            raise self._malformed()
        name, authorization_id = _plain(match["name"]), match["authzid"]
        if authorization_id is not None and _plain(authorization_id) != name:
            raise AuthenticationRefused(
                Reason.OTHER_AUTHORIZATION_ID,
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        extensions = dict(pair.partition("=")[::2] for pair in match["extensions"].split(",") if pair)
        self._by_token = extensions.get(TOKEN_EXTENSION, "").lower() == "true"
        find = self._lookup.of_token if self._by_token else self._lookup.of_user
        self._known = find(self._mechanism, name)
        credential = self._known.credential
        self._client_nonce = match["nonce"]
        self._nonce = self._client_nonce + self._own_nonce
        self._binding = base64.b64encode(match["gs2"].encode()).decode()
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._messages = f"{match['bare']},{answer}"
        return Challenge(answer.encode())

    def _final(self, message: str, known: KnownCredential) -> Done:
        match = _FINAL.fullmatch(message)
        if match is None:
            raise self._malformed()
        if not hmac.compare_digest(match["nonce"], self._nonce) or match["binding"] != self._binding:
            if hmac.compare_digest(match["nonce"], self._client_nonce + self._nonce):
                raise self._refused(Reason.DOUBLED_NONCE, _OLD_LIBRDKAFKA)
            raise self._refused()
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            raise self._malformed() from None
        mechanism, credential = self._mechanism, known.credential
        signed = f"{self._messages},{match['bare']}".encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        if len(proof) != len(signature):
            raise self._refused()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(mechanism.hash(client_key), credential.stored_key):
            raise self._refused()
        verifier = base64.b64encode(mechanism.hmac(credential.server_key, signed))
        return Done(b"v=" + verifier, known.principal, known.expires_ms, self._by_token)

    def _refused(self, reason: Reason = Reason.BAD_CREDENTIALS, hint: str = "") -> AuthenticationRefused:
        return AuthenticationRefused(
            reason,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + self._mechanism.mechanism_name,
            hint,
        )

    def _malformed(self) -> AuthenticationRefused:
        return AuthenticationRefused(Reason.MALFORMED, "Invalid SASL/SCRAM message")


def _plain(sent: str) -> str:
    return sent.replace("=2C", ",").replace("=3D", "=")
