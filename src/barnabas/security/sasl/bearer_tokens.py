"""Bearer tokens (JWT), verified with the issuer's public keys (JWKS).

A token is valid only if a key of the set has signed it; its own claims decide nothing about that. The kind of
the key decides the algorithms. A key, or the address of one, in the token's header is ignored, and there are
no unsigned tokens. Symmetric keys are left out of the set: a party that can verify such a token could also
make one.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from barnabas.core.errors import InvalidConfig
from barnabas.security.sasl.outcome import AuthenticationRefused, Reason

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("Ed25519",),
    "Ed448": ("Ed448",),
}
TOKEN_BYTES_MAX = 16_384
KEYS_MAX = 100


class PublicKey(NamedTuple):
    key_id: str | None
    algorithms: tuple[str, ...]
    key: RSAKey | ECKey | OKPKey


class PublicKeys(NamedTuple):
    """Keys of an issuer that can verify a signature."""

    keys: tuple[PublicKey, ...]

    @classmethod
    def parse(cls, text: bytes | str) -> PublicKeys:
        """Parse a key set; INVALID_CONFIG if it has no usable key."""
        try:
            found = json.loads(text)["keys"]
            if not isinstance(found, list) or len(found) > KEYS_MAX:
                raise ValueError("keys")
            keys = tuple(key for each in found if (key := _public_key(each)) is not None)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InvalidConfig("the key set is not a JSON Web Key Set") from None
        if not keys:
            raise InvalidConfig("the key set has no public key that can verify a signature")
        return cls(keys)

    def find(self, key_id: object, algorithm: object) -> PublicKey | None:
        """The key with this id. Without an id, the only key that fits; a choice among several would be a
        guess."""
        suited = [key for key in self.keys if algorithm in key.algorithms]
        if key_id is not None:
            suited = [key for key in suited if key.key_id == key_id]
        return suited[0] if len(suited) == 1 else None


def _public_key(fields: Any) -> PublicKey | None:
    """None for a key of another purpose or of an unknown kind."""
    if not isinstance(fields, dict) or fields.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    if fields.get("use", "sig") != "sig" or "verify" not in fields.get("key_ops", ["verify"]):
        return None
    suited = _RSA if fields["kty"] == "RSA" else _BY_CURVE.get(str(fields.get("crv")), ())
    algorithms = tuple(each for each in suited if fields.get("alg", each) == each)
    try:
        (key,) = KeySet.import_key_set({"keys": [fields]}).keys
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    key_id = fields.get("kid")
    if not algorithms or not isinstance(key, RSAKey | ECKey | OKPKey):
        return None
    return PublicKey(None if key_id is None else str(key_id), algorithms, key)


class BearerToken(NamedTuple):
    principal_name: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Demands on a token's claims."""

    issuer: str | None = None
    audiences: Collection[str] = ()
    clock_skew_ms: int = 30_000
    subject_claim: str = "sub"
    scope_claim: str = "scope"


def verify(token: str, keys: PublicKeys, rules: TokenRules, now_ms: int) -> BearerToken:
    """User and expiry of a valid token; AuthenticationRefused otherwise."""
    claims = _verified_claims(token, keys)
    expires_ms = _moment(claims, "exp")
    if expires_ms is None:
        raise _refused()
    if now_ms >= expires_ms + rules.clock_skew_ms:
        raise _refused(Reason.EXPIRED_TOKEN)
    for claim in ("nbf", "iat"):
        since_ms = _moment(claims, claim)
        if since_ms is not None and since_ms > now_ms + rules.clock_skew_ms:
            raise _refused()
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise _refused()
    named = claims.get("aud")
    audiences = named if isinstance(named, list) else [named]
    if rules.audiences and not any(each in rules.audiences for each in audiences if isinstance(each, str)):
        raise _refused()
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise _refused()
    scope = claims.get(rules.scope_claim, "")
    if not isinstance(scope, str | list):
        raise _refused()
    # Expired, but within the difference of the clocks: valid until the end of that difference.
    return BearerToken(subject, expires_ms if expires_ms > now_ms else expires_ms + rules.clock_skew_ms)


def _verified_claims(token: str, keys: PublicKeys) -> dict[str, Any]:
    if len(token) > TOKEN_BYTES_MAX:
        raise _refused()
    try:
        signed = jws.extract_compact(token.encode())
        header = signed.headers()
        found = keys.find(header.get("kid"), header.get("alg"))
        if found is None or not jws.validate_compact(signed, found.key, found.algorithms):
            raise _refused()
        claims = json.loads(signed.payload)
    except (JoseError, ValueError, TypeError, RecursionError):
        raise _refused() from None
    if not isinstance(claims, dict):
        raise _refused()
    return claims


def _moment(claims: dict[str, Any], name: str) -> int | None:
    """The time of a claim in milliseconds; None if it is missing."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise _refused()
    return int(value * 1_000)


def _refused(reason: Reason = Reason.BAD_TOKEN) -> AuthenticationRefused:
    return AuthenticationRefused(reason, "invalid_token")
