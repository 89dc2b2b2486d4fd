"""Tokens of OAUTHBEARER for a broker of a test, signed with a key of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from joserfc import jwt
from joserfc.jwk import RSAKey

MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"


class Issuer:
    """A key, and settings of a broker that accepts its tokens at a second listener."""

    def __init__(self, directory: Path) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "k"}, private=True)
        keys = directory / "keys.json"
        keys.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        listener = "listener.name.sasl_plaintext.oauthbearer.sasl"
        self.settings: Final = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{listener}.jaas.config": f"{MODULE}LoginModule required;",
            f"{listener}.server.callback.handler.class": f"{MODULE}ValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "connections.max.reauth.ms": "3600000",
        }

    def token(self, *, ends_s: int) -> str:
        """A token that ends so many seconds after 1970."""
        return jwt.encode({"alg": "RS256", "kid": "k"}, {"sub": "alice", "exp": ends_s}, self._key)
