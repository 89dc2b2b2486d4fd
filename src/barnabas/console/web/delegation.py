"""Delegation tokens for visitors whom a certificate names.

A certificate shows the console which user a visitor is. The visitor's private key stays with the visitor, so
the console cannot log in to the brokers with that certificate. It asks the brokers for a delegation token of
that user instead (KIP-48). The console's own login may create tokens for others (KIP-373: CreateTokens on
User:name). The brokers decide for whom the console may act, and their access rules hold for what it does.

A token lives for an hour at most, and is expired when its session ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.delegation_tokens import Token
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.security.identity.principal import KafkaPrincipal

logger = logging.getLogger(__name__)

LIFETIME_MS: Final = 3_600_000
OWN_LIFETIME_MS: Final = 10_000
EXPIRING_S: Final = 3.0


class Delegation:
    def __init__(self, properties: Mapping[str, Any], clock: Clock) -> None:
        self._admin = Admin(properties, clock=clock)
        self._own: KafkaPrincipal | None = None
        """Principal of the console, which renews and expires the tokens that it creates."""
        self._asking = asyncio.Lock()

    async def token_of(self, user: str) -> Token:
        """A token of the user. DELEGATION_TOKEN_AUTHORIZATION_FAILED if the console may not create it."""
        own = await self._own_principal()
        return await self._admin.create_delegation_token(
            owner=KafkaPrincipal.user(user), renewers=[own], lifetime_ms=LIFETIME_MS
        )

    async def expire(self, token_id: str) -> None:
        """Expire a token now. If no broker answers, it expires within the hour."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EXPIRING_S):
                try:
                    await self._admin.expire_delegation_token(token_id)
                except (KafkaError, ClusterUnreachable) as error:
                    logger.warning("delegation token %s could not be expired: %s", token_id, error)

    async def close(self) -> None:
        await self._admin.close()

    async def _own_principal(self) -> KafkaPrincipal:
        """The console's principal, as the brokers name it: the owner of a token created without an owner."""
        async with self._asking:
            if self._own is None:
                token = await self._admin.create_delegation_token(lifetime_ms=OWN_LIFETIME_MS)
                self._own = token.owner
                await self.expire(token.token_id)
            return self._own
