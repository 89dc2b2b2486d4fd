"""Clients of the signed-in users: each change is made by a client that logged in as that user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.config.settings import AdminSettings
from barnabas.client.security.settings import SecurityProtocol, login_module
from barnabas.console.view.history import LagHistory
from barnabas.console.view.interface import ClusterView
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig, KafkaError, SaslAuthenticationFailed
from barnabas.security.identity.principal import ANONYMOUS
from barnabas.security.sasl.jaas import JaasEntry

CLIENT_ID: Final = "barnabas-console"
JAAS: Final = "sasl.jaas.config"
MECHANISM: Final = "sasl.mechanism"
MODULES: Final = {
    "PlainLoginModule": "org.apache.kafka.common.security.plain",
    "ScramLoginModule": "org.apache.kafka.common.security.scram",
}
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a key
_IDENTITIES: Final = (JAAS, _TOKEN_URL, "ssl.keystore.", "ssl.certificate.", "ssl.key.")
SIGN_IN_PAUSE_S: Final = 0.5
SIGN_INS_MAX: Final = 4
"""Passwords that are checked at the same time; each takes a connection to a broker."""

OpenClusterView = Callable[[ClusterClient, str | None], Awaitable[ClusterView]]
"""Opens what one user reads the cluster with, from that user's client and principal."""


class Connection:
    """Clients of one user."""

    def __init__(self, properties: Mapping[str, Any], clock: Clock, user: str | None) -> None:
        self.properties = {**properties, "client.id": CLIENT_ID}
        """Settings of further clients of this user: producers, readers of records."""
        self.user = user
        """Name that the user logged in with; None without a login."""
        self.admin = Admin(self.properties, clock=clock)
        self.cluster = ClusterClient.of(AdminSettings.load(self.properties), clock=clock)
        self.view: ClusterView
        self.history = LagHistory()

    @property
    def principal(self) -> str | None:
        return None if self.user is None else f"User:{self.user}"

    @property
    def shown_user(self) -> str:
        return self.user or ANONYMOUS.name

    async def close(self) -> None:
        closing = getattr(self.view, "close", None) if hasattr(self, "view") else None
        if closing is not None:
            await closing()
        await asyncio.gather(self.admin.close(), self.cluster.close())


class Connections:
    """Opens connections: the one that all sessions share, or one for each login."""

    def __init__(self, properties: Mapping[str, Any], clock: Clock, open_view: OpenClusterView) -> None:
        self._properties = dict(properties)
        self._clock = clock
        self._open_view = open_view
        self._checking = asyncio.Semaphore(SIGN_INS_MAX)

    @property
    def needs_login(self) -> bool:
        return needs_login(self._properties)

    async def open_shared(self) -> Connection:
        return await self._open(self._properties, None)

    async def log_in(self, user: str, password: str, *, is_token: bool = False) -> Connection:
        """Connection of a user. SASL_AUTHENTICATION_FAILED for a wrong password."""
        if "${" in user or "${" in password:
            # Such text is a reference to a secret of this machine, which a stranger must not reach.
            raise SaslAuthenticationFailed("a name or password with ${ cannot be used here")
        mechanism = str(self._properties.get(MECHANISM, "SCRAM-SHA-512")).strip().upper()
        module = login_module(mechanism)
        if module not in MODULES:
            raise InvalidConfig(f"users cannot sign in with {mechanism}; give the console a login of its own")
        options = {"username": user, "password": password}
        if is_token:
            options["tokenauth"] = "true"
        jaas = JaasEntry(f"{MODULES[module]}.{module}", "required", options).render()
        async with self._checking:
            try:
                return await self._open({**self._properties, MECHANISM: mechanism, JAAS: jaas}, user)
            except SaslAuthenticationFailed:
                await asyncio.sleep(SIGN_IN_PAUSE_S)
                raise

    async def _open(self, properties: Mapping[str, Any], user: str | None) -> Connection:
        made = Connection(properties, self._clock, user)
        try:
            if user is not None:
                await made.cluster.any_channel()
            made.view = await self._open_view(made.cluster, made.principal)
        except BaseException:
            await made.close()
            raise
        return made


def needs_login(properties: Mapping[str, Any]) -> bool:
    """Whether the brokers ask for a login, and these properties have none."""
    protocol = str(properties.get("security.protocol", "PLAINTEXT")).strip().upper()
    is_sasl = protocol in SecurityProtocol.__members__ and SecurityProtocol[protocol].is_sasl
    return is_sasl and not any(name in properties for name in (JAAS, _TOKEN_URL))


def has_own_identity(properties: Mapping[str, Any]) -> bool:
    """Whether these properties have a login or a certificate."""
    return any(name.startswith(_IDENTITIES) for name in properties)


def reason_of(error: Exception) -> str:
    return error.message if isinstance(error, KafkaError) else str(error)
