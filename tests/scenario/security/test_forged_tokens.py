"""Tokens without a signature, or with that of an issuer that the broker does not trust, on real sockets."""

from __future__ import annotations

import base64
import hmac
import json
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from barnabas.testing.broker import RunningBroker
from tests.scenario.security.sasl_broker import sasl_broker
from tests.scenario.security.test_sasl_clients import bearer, bearer_settings
from tests.support import wire

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
AUTHENTICATION_FAILED = 58


@pytest.fixture(scope="module")
def issuer() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "k"})


@pytest.fixture(scope="module")
def bearer_broker(issuer: RSAKey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(json.dumps({"keys": [issuer.as_dict(private=False)]}))
    more = {"connection.failed.authentication.delay.ms": "0"}
    with sasl_broker({**bearer_settings(keys), **more}) as broker:
        yield broker


def unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def plain(fields: dict[str, Any]) -> str:
    return unpadded(json.dumps(fields).encode())


def forged(issuer: RSAKey) -> dict[str, str]:
    claims = {"sub": "admin", "iss": "https://issuer", "aud": "kafka", "exp": int(time.time()) + 300}
    own = RSAKey.generate_key(2048, {"kid": "k"})
    good, _ = bearer(issuer)
    head, _, signature = good.split(".")
    symmetric = f"{plain({'alg': 'HS256', 'kid': 'k'})}.{plain(claims)}"
    by_secret = hmac.digest(issuer.as_pem(private=False), symmetric.encode(), "sha256")
    with_key = {"alg": "RS256", "kid": "k", "jwk": own.as_dict(private=False)}
    return {
        "unsigned": f"{plain({'alg': 'none'})}.{plain(claims)}.",
        "unsigned, by another spelling": f"{plain({'alg': 'nOnE', 'kid': 'k'})}.{plain(claims)}.",
        "the signature left out": good.rpartition(".")[0] + ".",
        "other claims under the signature": f"{head}.{plain(claims)}.{signature}",
        "no algorithm": f"{plain({'kid': 'k'})}.{plain(claims)}.{signature}",
        "signed with the public key as a secret": f"{symmetric}.{unpadded(by_secret)}",
        "a key of its own in the header": jwt.encode(with_key, claims, own),
        "an address of keys in the header": jwt.encode(
            {"alg": "RS256", "kid": "k", "jku": "https://evil.example/keys"}, claims, own
        ),
        "a key that nobody has": jwt.encode({"alg": "RS256", "kid": "../k"}, claims, own),
        "never ends": jwt.encode(
            {"alg": "RS256", "kid": "k"}, {k: v for k, v in claims.items() if k != "exp"}, issuer
        ),
        "not a token": "a.b.c",
    }


def show_token(wire_: wire.WireConnection, token: bytes) -> tuple[int, bytes | None]:
    reader = wire_.ask(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token)
    error, _ = reader.number("h"), reader.string()
    return error, reader.byte_string()


def test_no_token_is_believed_for_what_it_says_of_itself(
    bearer_broker: RunningBroker, issuer: RSAKey
) -> None:
    """CVE-2026-33557, CVE-2026-110985."""
    for name, token in {"good": bearer(issuer)[0], **forged(issuer)}.items():
        with connected(bearer_broker) as connection:
            assert connection.ask(SASL_HANDSHAKE, 1, wire.string("OAUTHBEARER")).number("h") == 0
            heard = show_token(connection, b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01")
            if name == "good":
                assert heard == (0, b"")
                continue
            assert heard == (0, b'{"status":"invalid_token"}'), name
            assert show_token(connection, b"\x01")[0] == AUTHENTICATION_FAILED, name
            assert connection.is_closed_by_peer(), name


def test_a_token_is_for_no_other_user(bearer_broker: RunningBroker, issuer: RSAKey) -> None:
    """CVE-2017-12610, for tokens."""
    token, _ = bearer(issuer)
    with connected(bearer_broker) as connection:
        connection.ask(SASL_HANDSHAKE, 1, wire.string("OAUTHBEARER"))
        heard = show_token(connection, b"n,a=admin,\x01auth=Bearer " + token.encode() + b"\x01\x01")
        assert heard == (0, b'{"status":"invalid_token"}')
        assert show_token(connection, b"\x01")[0] == AUTHENTICATION_FAILED


def connected(broker: RunningBroker) -> wire.WireConnection:
    host, _, port = broker.bootstrap.rpartition(":")
    return wire.WireConnection(host, int(port), timeout_s=60.0)
