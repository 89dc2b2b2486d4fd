"""Delegation tokens (KIP-48): a user gives them to others, who log in as that user for a limited time.

A token is an id and a secret. The secret is derived from the id and the brokers' own secret
(`delegation.token.secret.key`), so it is stored nowhere. A client logs in by SCRAM with the id as the name
and the secret as the password. A token expires unless it is renewed, and can be renewed up to its maximum
lifetime. This module has the rules; `cluster.stores.delegation_tokens` stores the tokens.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.core.errors import DelegationTokenExpired, DelegationTokenOwnerMismatch
from barnabas.security.identity.principal import KafkaPrincipal


class DelegationToken(NamedTuple):
    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_known_to(self, principal: KafkaPrincipal) -> bool:
        """Whether this principal may describe, renew and expire the token."""
        return self.is_known_to_any({principal})

    def is_known_to_any(self, principals: AbstractSet[KafkaPrincipal]) -> bool:
        return not principals.isdisjoint((self.owner, self.requester, *self.renewers))


@dataclass(frozen=True, slots=True)
class TokenTimes:
    lifetime_ms_max: int
    renewal_ms: int


def token_secret(brokers_secret: str, token_id: str) -> bytes:
    return hmac.digest(brokers_secret.encode(), token_id.encode(), "sha512")


def token_password(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def created(
    token_id: str,
    owner: KafkaPrincipal,
    requester: KafkaPrincipal,
    renewers: tuple[KafkaPrincipal, ...],
    lifetime_ms: int,
    now_ms: int,
    times: TokenTimes,
) -> DelegationToken:
    """A lifetime of 0 or less means the broker's default."""
    max_ms = now_ms + (min(lifetime_ms, times.lifetime_ms_max) if lifetime_ms > 0 else times.lifetime_ms_max)
    expiry_ms = min(max_ms, now_ms + times.renewal_ms)
    return DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, expiry_ms)


def renewed(
    token: DelegationToken, principal: KafkaPrincipal, period_ms: int, now_ms: int, times: TokenTimes
) -> DelegationToken:
    """A negative period means the broker's default."""
    _check(token, principal, now_ms)
    period_ms = times.renewal_ms if period_ms < 0 else period_ms
    return token._replace(expiry_ms=min(token.max_ms, now_ms + period_ms))


def shortened(
    token: DelegationToken, principal: KafkaPrincipal, period_ms: int, now_ms: int
) -> DelegationToken | None:
    """None if the token ends at once, as a negative period demands."""
    _check(token, principal, now_ms)
    return None if period_ms < 0 else token._replace(expiry_ms=min(token.max_ms, now_ms + period_ms))


def _check(token: DelegationToken, principal: KafkaPrincipal, now_ms: int) -> None:
    if not token.is_known_to(principal):
        raise DelegationTokenOwnerMismatch("the token belongs to another principal")
    if token.max_ms < now_ms or token.expiry_ms < now_ms:
        raise DelegationTokenExpired("the token has expired")
