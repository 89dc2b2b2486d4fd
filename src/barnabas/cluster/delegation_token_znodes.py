"""Delegation tokens in the store: `/delegation_token/tokens/<id>`, and notes that one has changed.

The secret of a token is not among what is stored.
"""

from __future__ import annotations

from barnabas.cluster.znode_json import from_json, reading, text, to_json
from barnabas.cluster.znodes import desanitize, sanitize
from barnabas.security.credentials.delegation_token import DelegationToken
from barnabas.security.principal import KafkaPrincipal


class DelegationTokenZnode:
    PARENT = "/delegation_token/tokens"

    @staticmethod
    def path(token_id: str) -> str:
        return f"/delegation_token/tokens/{token_id}"

    @staticmethod
    def encode(token: DelegationToken) -> bytes:
        return to_json(
            {
                "version": 3,
                "owner": sanitize(str(token.owner)),
                "tokenRequester": sanitize(str(token.requester)),
                "renewers": [sanitize(str(each)) for each in token.renewers],
                "issueTimestamp": token.issue_ms,
                "maxTimestamp": token.max_ms,
                "expiryTimestamp": token.expiry_ms,
                "tokenId": token.token_id,
            }
        )

    @staticmethod
    def decode(data: bytes) -> DelegationToken:
        with reading("a delegation token"):
            fields = from_json(data)
            owner = text(fields["owner"])
            return DelegationToken(
                text(fields["tokenId"]),
                _principal(owner),
                _principal(text(fields.get("tokenRequester", owner))),  # since version 3
                tuple(_principal(text(each)) for each in fields["renewers"]),
                int(fields["issueTimestamp"]),
                int(fields["maxTimestamp"]),
                int(fields["expiryTimestamp"]),
            )


class TokenChangeZnode:
    """A note: the id of the token."""

    PARENT = "/delegation_token/token_changes"
    CREATE_PATH = "/delegation_token/token_changes/token_change_"

    @staticmethod
    def encode(token_id: str) -> bytes:
        return token_id.encode()


def _principal(stored: str) -> KafkaPrincipal:
    kind, colon, name = desanitize(stored).partition(":")
    if not colon:
        raise ValueError("not a principal")
    return KafkaPrincipal(kind, name)
