"""Delegation tokens, made, renewed and ended over the wire.

Everything is asked of the controller, so that what follows a change finds it there. A broker shows the secret
of a token to those who know it anyway; tokens are named by their ids here, so that nobody types a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from barnabas.client.cluster_client import ClusterClient
from barnabas.client.steps import Steps
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
from barnabas.security.principal import KafkaPrincipal

BY_THE_BROKER = -1
"""As a time: what the brokers' settings say; of an expiry: now."""

_MEANINGS = {
    DelegationTokenAuthDisabled.code: "there are no tokens here: no delegation.token.secret.key is set",
    DelegationTokenAuthorizationFailed.code: "tokens of somebody else are not for this user",
    DelegationTokenExpired.code: "the token has expired",
    DelegationTokenNotFound.code: "there is no such token",
    DelegationTokenOwnerMismatch.code: "the token belongs to somebody else",
    DelegationTokenRequestNotAllowed.code: "tokens are for who has logged in, and not by a token",
    InvalidPrincipalType.code: "owners and renewers are users, as User:alice",
}


@dataclass(frozen=True, slots=True)
class Token:
    token_id: str
    owner: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """It can be renewed until then."""
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
        """For who asks, unless `owner` says for whom. Not tried again: there would be two."""
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
        """Those that who asks may see; of these owners, or of all where none is named."""
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
        """When it expires now."""
        request = RenewDelegationTokenRequest(hmac=await self._secret(token_id), renew_period_ms=period_ms)

        def attempt() -> Steps[int]:
            answer = yield from self._cluster.state.ask_controller(request, RenewDelegationTokenResponse)
            _check(answer.error_code)
            return answer.expiry_timestamp_ms

        return await self._cluster.run_with_retries(attempt)

    async def expire(self, token_id: str, period_ms: int = BY_THE_BROKER) -> int:
        """When it expires now."""
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
        raise DelegationTokenNotFound(f"there is no token {token_id}, or it is not for this user")


def _check(code: int) -> None:
    if code:
        raise error_for(code, _MEANINGS.get(code, "delegation tokens"))
