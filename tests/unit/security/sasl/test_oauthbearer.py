"""OAUTHBEARER: only a token that an issuer's key has signed is valid, despite its own claims."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.registry import HeaderParameter

from barnabas.core.errors import InvalidConfig
from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.bearer_tokens import PublicKeys, TokenRules, verify
from barnabas.security.sasl.oauthbearer import MESSAGE_BYTES_MAX, BearerAuthentication
from barnabas.security.sasl.outcome import AuthenticationRefused, Challenge, Done, Reason

NOW_S = 1_700_000_000
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
STRANGER = RSAKey.generate_key(2048, {"kid": "rsa"})
SYMMETRIC = OctKey.generate_key(256, {"kid": "oct"})
JWKS = {"keys": [key.as_dict(private=False) for key in (RSA, EC, ED)] + [SYMMETRIC.as_dict()]}
KEYS = PublicKeys.parse(json.dumps(JWKS))
RULES = TokenRules(issuer="https://issuer", audiences=("kafka",))
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": ["other", "kafka"], "iat": NOW_S, "exp": NOW_S + 60}


def token(claims: dict[str, Any] | None = None, key: Any = RSA, **header: Any) -> str:
    header = {"alg": "RS256", "kid": key.kid} | header
    header = {name: value for name, value in header.items() if value is not None}
    return jwt.encode(header, {**CLAIMS, **(claims or {})}, key, algorithms=[header["alg"]])


def unsigned(header: dict[str, Any]) -> str:
    parts = [json.dumps(each).encode() for each in (header, CLAIMS)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def refusal(text: str, rules: TokenRules = RULES) -> Reason:
    with pytest.raises(AuthenticationRefused) as refused:
        verify(text, KEYS, rules, NOW_S * 1_000)
    assert not text or text not in refused.value.message
    return refused.value.reason


@pytest.mark.parametrize(
    ("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256"), (ED, "Ed25519")]
)
def test_a_token_of_each_kind_of_key(key: Any, algorithm: str) -> None:
    assert verify(token(key=key, alg=algorithm), KEYS, RULES, NOW_S * 1_000) == (
        "alice",
        (NOW_S + 60) * 1_000,
    )


def test_without_an_id_the_one_key_that_suits() -> None:
    assert verify(token(kid=None), KEYS, RULES, NOW_S * 1_000).principal_name == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other"},
        {"aud": "other"},
        {"aud": None},
        {"sub": ""},
        {"sub": 7},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"nbf": NOW_S + 31},
        {"iat": NOW_S + 31},
        {"scope": 7},
    ],
)
def test_a_token_that_says_something_else(claims: dict[str, Any]) -> None:
    assert refusal(token(claims)) is Reason.BAD_TOKEN


def test_a_token_that_is_over() -> None:
    assert refusal(token({"exp": NOW_S - 30})) is Reason.EXPIRED_TOKEN
    assert verify(token({"exp": NOW_S - 29}), KEYS, RULES, NOW_S * 1_000).principal_name == "alice"


def test_a_claim_of_another_name_holds_the_user() -> None:
    rules = TokenRules(subject_claim="email")
    assert verify(token({"email": "a@b"}), KEYS, rules, NOW_S * 1_000).principal_name == "a@b"


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", ""])
@pytest.mark.parametrize("key_id", [None, "rsa", "unknown"])
def test_no_unsigned_token(algorithm: str, key_id: str | None) -> None:
    """CVE-2026-33557."""
    header = {"alg": algorithm} if key_id is None else {"alg": algorithm, "kid": key_id}
    assert refusal(unsigned(header)) is Reason.BAD_TOKEN


def test_the_token_brings_no_key() -> None:
    own = STRANGER.as_dict(private=False)
    for header in (
        {"jwk": own},
        {"jku": "https://evil/keys"},
        {"x5u": "https://evil"},
        {"kid": "mine", "jwk": own},
    ):
        assert refusal(token(key=STRANGER, **header)) is Reason.BAD_TOKEN


def test_a_public_key_is_no_shared_secret() -> None:
    """The classic confusion: HS256, keyed with the text of the public key."""
    signed = unsigned({"alg": "HS256", "kid": "rsa"})[:-1]
    mac = hmac.digest(RSA.as_pem(private=False), signed.encode(), "sha256")
    forged = f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    assert refusal(forged) is Reason.BAD_TOKEN
    shared = jwt.encode({"alg": "HS256", "kid": "oct"}, CLAIMS, SYMMETRIC, algorithms=["HS256"])
    assert refusal(shared) is Reason.BAD_TOKEN


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "....", "é.é.é", "x" * 20_000, "{}.{}.{}"])
def test_what_is_no_token(text: str) -> None:
    assert refusal(text) is Reason.BAD_TOKEN


def test_a_changed_token() -> None:
    head, body, signature = token().split(".")
    assert refusal(f"{head}.{body[:-2]}AA.{signature}") is Reason.BAD_TOKEN


def test_an_unknown_critical_header() -> None:
    registry = jws.JWSRegistry(header_registry={"strange": HeaderParameter("strange", "str")})
    header = {"alg": "RS256", "kid": "rsa", "crit": ["strange"], "strange": "x"}
    assert (
        refusal(jws.serialize_compact(header, json.dumps(CLAIMS), RSA, registry=registry)) is Reason.BAD_TOKEN
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": 1}',
        b'{"keys": []}',
        b'{"keys": [1]}',
        json.dumps({"keys": [SYMMETRIC.as_dict()]}).encode(),
        json.dumps({"keys": [RSA.as_dict(private=False) | {"use": "enc"}]}).encode(),
        json.dumps({"keys": [{"kty": "RSA", "n": "AA", "e": 7}]}).encode(),
    ],
    ids=range(9),
)
def test_a_set_without_a_key_is_none(text: bytes) -> None:
    with pytest.raises(InvalidConfig):
        PublicKeys.parse(text)


def step(message: bytes) -> Challenge | Done:
    return BearerAuthentication(lambda text: verify(text, KEYS, RULES, NOW_S * 1_000)).step(message)


def test_the_message_of_kafka_s_clients() -> None:
    done = step(b"n,,\x01auth=Bearer " + token().encode() + b"\x01traceId=12\x01\x01")
    assert done == Done(b"", KafkaPrincipal.user("alice"), (NOW_S + 60) * 1_000)


def test_a_refused_token_hears_of_it_and_fails_with_the_next_message() -> None:
    server = BearerAuthentication(lambda text: verify(text, KEYS, RULES, NOW_S * 1_000))
    challenge = server.step(b"n,,\x01auth=Bearer " + token({"exp": 1}).encode() + b"\x01\x01")
    assert challenge == Challenge(b'{"status":"invalid_token"}')
    with pytest.raises(AuthenticationRefused) as refused:
        server.step(b"n,,\x01auth=Bearer " + token().encode() + b"\x01\x01")
    assert refused.value.reason is Reason.EXPIRED_TOKEN


@pytest.mark.parametrize("who", [b"alice", b"bob"])
def test_no_client_acts_as_another_user(who: bytes) -> None:
    outcome = step(b"n,a=" + who + b",\x01auth=Bearer " + token().encode() + b"\x01\x01")
    assert isinstance(outcome, Done) == (who == b"alice")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01other=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_what_is_not_a_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        step(message)
    assert refused.value.reason is Reason.MALFORMED


def test_a_message_has_a_bound() -> None:
    begun = b"n,,\x01auth=Bearer " + token().encode() + b"\x01traceId="
    longest = begun.ljust(MESSAGE_BYTES_MAX - 2, b"1") + b"\x01\x01"
    assert isinstance(step(longest), Done)
    with pytest.raises(AuthenticationRefused) as refused:
        step(begun + b"1" + longest[len(begun) :])
    assert refused.value.reason is Reason.TOO_LARGE


def test_a_message_says_few_things() -> None:
    def saying(count: int) -> bytes:
        return b"n,,\x01auth=Bearer " + token().encode() + b"\x01" + b"a=b\x01" * (count - 1) + b"\x01"

    assert isinstance(step(saying(32)), Done)
    with pytest.raises(AuthenticationRefused):
        step(saying(33))


def test_a_token_that_is_over_by_a_slow_clock_is_good_for_the_rest_of_the_difference() -> None:
    assert verify(token({"exp": NOW_S - 29}), KEYS, RULES, NOW_S * 1_000).expires_ms == (NOW_S + 1) * 1_000
