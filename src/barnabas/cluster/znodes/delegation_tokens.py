"""Delegation token znodes: `/delegation_token/tokens/<id>`, and notifications of their changes.

The secret of a token is not stored.
"""

from __future__ import annotations

from barnabas.cluster.znodes.json_codec import from_json, reading, text, to_json, to_utf8
from barnabas.cluster.znodes.layout import desanitize, sanitize
from barnabas.core.errors import InvalidRequest
from barnabas.security.credentials.delegation_token import DelegationToken
from barnabas.security.identity.principal import KafkaPrincipal


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
                "owner": _stored(token.owner),
                "tokenRequester": _stored(token.requester),
                "renewers": [_stored(each) for each in token.renewers],
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
    """Notification of a changed token: its id."""

    PARENT = "/delegation_token/token_changes"
    CREATE_PATH = "/delegation_token/token_changes/token_change_"

    @staticmethod
    def encode(token_id: str) -> bytes:
        return to_utf8(token_id)


def _stored(principal: KafkaPrincipal) -> str:
    """Encoded principal; InvalidRequest if it would decode as another one, which would then own the token."""
    try:
        stored = sanitize(str(principal))
        if _principal(stored) == principal:
            return stored
    except ValueError as error:
        raise InvalidRequest(f"{principal!r} cannot be written: {error}") from None
    raise InvalidRequest(f"{principal!r} would be read as another principal")


def _principal(stored: str) -> KafkaPrincipal:
    kind, colon, name = desanitize(stored).partition(":")
    if not colon:
        raise ValueError("not a principal")
    return KafkaPrincipal(kind, name)
