"""Delegation token requests: create, list, renew, expire.

All of them go to the controller, so that a request after a change sees the change. A broker shows the secret
of a token only to users that know it anyway. Callers name tokens by id, so that no user types a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import Steps
from barnabas.core.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    error_for,
)
from barnabas.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.security.credentials.delegation_token import token_password
from barnabas.security.identity.principal import KafkaPrincipal

BY_THE_BROKER = -1
"""Time that the broker's settings decide. As an expiry: now."""

_MEANINGS = {
    DelegationTokenAuthDisabled.code: "tokens are disabled: the broker has no delegation.token.secret.key",
    DelegationTokenAuthorizationFailed.code: "this user may not see or change tokens of another owner",
    DelegationTokenExpired.code: "the token has expired",
    DelegationTokenNotFound.code: "there is no such token",
    DelegationTokenOwnerMismatch.code: "the token has another owner, and this user may not renew it",
    DelegationTokenRequestNotAllowed.code: "a token needs a login by SASL or TLS, and not by another token",
    InvalidPrincipalType.code: "owners and renewers are users, such as User:alice",
}


@dataclass(frozen=True, slots=True)
class Token:
    token_id: str
    owner: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """Renewals cannot go past this time."""
    secret: bytes = field(repr=False)

    @property
    def password(self) -> str:
        return token_password(self.secret)


class Tokens:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def create(
        self, owner: KafkaPrincipal | None, renewers: Sequence[KafkaPrincipal], lifetime_ms: int
    ) -> Token:
        """Create a token for this user, or for `owner`. It is not retried: a retry could leave two tokens."""
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.kind,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
            max_lifetime_ms=lifetime_ms,
        )

        def attempt() -> Steps[Token]:
            answer = yield from self._cluster.state.ask_controller(request, CreateDelegationTokenResponse)
            _check(answer.error_code)
            return Token(
                answer.token_id,
                KafkaPrincipal(answer.principal_type, answer.principal_name),
                tuple(renewers),
                answer.issue_timestamp_ms,
                answer.expiry_timestamp_ms,
                answer.max_timestamp_ms,
                bytes(answer.hmac),
            )

        return await self._cluster.run(attempt())

    async def list(self, owners: Sequence[KafkaPrincipal] = ()) -> list[Token]:
        """Tokens that this user may see, of these owners or of all."""
        named = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in owners
        ]
        request = DescribeDelegationTokenRequest(owners=named or None)

        def attempt() -> Steps[list[Token]]:
            answer = yield from self._cluster.state.ask_controller(request, DescribeDelegationTokenResponse)
            _check(answer.error_code)
            return [
                Token(
                    row.token_id,
                    KafkaPrincipal(row.principal_type, row.principal_name),
                    tuple(KafkaPrincipal(each.principal_type, each.principal_name) for each in row.renewers),
                    row.issue_timestamp,
                    row.expiry_timestamp,
                    row.max_timestamp,
                    bytes(row.hmac),
                )
                for row in answer.tokens
            ]

        return sorted(await self._cluster.run_with_retries(attempt), key=lambda token: token.issued_ms)

    async def renew(self, token_id: str, period_ms: int = BY_THE_BROKER) -> int:
        """Renew a token; returns its new expiry time."""
        request = RenewDelegationTokenRequest(hmac=await self._secret(token_id), renew_period_ms=period_ms)

        def attempt() -> Steps[int]:
            answer = yield from self._cluster.state.ask_controller(request, RenewDelegationTokenResponse)
            _check(answer.error_code)
            return answer.expiry_timestamp_ms

        return await self._cluster.run_with_retries(attempt)

    async def expire(self, token_id: str, period_ms: int = BY_THE_BROKER) -> int:
        """Expire a token, at once or after a period; returns its new expiry time."""
        secret = await self._secret(token_id)
        request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)

        def attempt() -> Steps[int]:
            answer = yield from self._cluster.state.ask_controller(request, ExpireDelegationTokenResponse)
            _check(answer.error_code)
            return answer.expiry_timestamp_ms

        return await self._cluster.run_with_retries(attempt)

    async def _secret(self, token_id: str) -> bytes:
        for token in await self.list():
            if token.token_id == token_id:
                return token.secret
        raise DelegationTokenNotFound(f"there is no token {token_id} that this user may see")


def _check(code: int) -> None:
    if code:
        raise error_for(code, _MEANINGS.get(code, "delegation tokens"))
