"""Clients of the signed-in users: each change is made by a client that logged in as that user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from barnabas.client.admin.admin import Admin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.config.settings import AdminSettings
from barnabas.client.security.settings import SecurityProtocol, login_module
from barnabas.console.view.client.cached import Cached
from barnabas.console.view.history import LagHistory, TrafficHistory
from barnabas.console.view.interface import ClusterView
from barnabas.console.view.rows import Overview
from barnabas.console.web.bearer import NoToken, read_bearer
from barnabas.console.web.delegation import Delegation
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    InvalidConfig,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from barnabas.security.identity.principal import ANONYMOUS
from barnabas.security.sasl.jaas import JaasEntry

CLIENT_ID: Final = "barnabas-console"
JAAS: Final = "sasl.jaas.config"
MECHANISM: Final = "sasl.mechanism"
MODULES: Final = {
    "PlainLoginModule": "org.apache.kafka.common.security.plain",
    "ScramLoginModule": "org.apache.kafka.common.security.scram",
}
BEARER: Final = "OAUTHBEARER"
BEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM: Final = "SCRAM-SHA-512"
TOKEN_MARGIN_MS: Final = 30_000.0
"""A session ends this long before the delegation token that it acts with."""
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a key
LOGINS: Final = (JAAS, _TOKEN_URL)
"""Keys that give the console a login of its own."""
_IDENTITIES: Final = (JAAS, _TOKEN_URL, "ssl.keystore.", "ssl.certificate.", "ssl.key.")
LIVE_FRESH_MS: Final = 2_000.0
"""Age of live figures that the viewers of one user share."""
SIGN_IN_PAUSE_S: Final = 0.5
SIGN_INS_MAX: Final = 4
"""Passwords that are checked at the same time; each takes a connection to a broker."""


FORBIDDEN: Final = (
    TopicAuthorizationFailed,
    GroupAuthorizationFailed,
    ClusterAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)


class OpenClusterView(Protocol):
    """Opens what one user reads the cluster with, from that user's client and principal. `by_client` leaves
    everything to the client: the brokers alone know the principal.
    """

    async def __call__(
        self, cluster: ClusterClient, principal: str | None, *, by_client: bool = False
    ) -> ClusterView: ...


@dataclass(frozen=True, slots=True)
class SignIn:
    """Settings of the sign-in."""

    mechanisms: tuple[str, ...] = (SCRAM,)
    by_certificate: bool = False
    """Whether a client certificate names its user, for whom the console gets a delegation token."""
    user_claim: str = "sub"
    """Claim of a bearer token that names its user."""


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
        self.traffic = TrafficHistory()
        self.live_overview = Cached(self._overview, clock, fresh_ms=LIVE_FRESH_MS)
        """For pages that stay open. A broker looks at each of its topics and groups for an overview."""
        self.ends_ms: float | None = None
        """Time of the monotonic clock at which the login ends; None for one that lasts."""
        self.returning: Callable[[], Awaitable[None]] | None = None
        """Gives back what the connection was opened with."""

    def is_over(self, now_ms: float) -> bool:
        return self.ends_ms is not None and now_ms >= self.ends_ms

    @property
    def principal(self) -> str | None:
        return None if self.user is None else f"User:{self.user}"

    @property
    def shown_user(self) -> str:
        return self.user or ANONYMOUS.name

    async def _overview(self) -> Overview:
        return await self.view.overview()

    async def close(self) -> None:
        await self.live_overview.close()
        closing = getattr(self.view, "close", None) if hasattr(self, "view") else None
        if closing is not None:
            await closing()
        await asyncio.gather(self.admin.close(), self.cluster.close())
        if self.returning is not None:
            await self.returning()


class Connections:
    """Opens connections: the one that all sessions share, or one for each login."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        clock: Clock,
        open_view: OpenClusterView,
        sign_in: SignIn | None = None,
    ) -> None:
        self.sign_in = sign_in or SignIn(visitors_mechanisms(properties))
        self._properties = dict(properties)
        self._clock = clock
        self._open_view = open_view
        self._checking = asyncio.Semaphore(SIGN_INS_MAX)
        self._delegation: Delegation | None = None

    @property
    def bootstrap(self) -> str:
        return str(self._properties.get("bootstrap.servers", ""))

    @property
    def needs_login(self) -> bool:
        """Whether each visitor acts as a user of their own."""
        return self.takes_certificates or needs_login(self._properties)

    @property
    def takes_certificates(self) -> bool:
        return self.sign_in.by_certificate

    @property
    def takes_bearers(self) -> bool:
        return self.needs_login and BEARER in self.sign_in.mechanisms

    @property
    def password_mechanism(self) -> str | None:
        """Mechanism of names and passwords; None if visitors cannot sign in by them."""
        return next((each for each in self.sign_in.mechanisms if login_module(each) in MODULES), None)

    @property
    def _scram(self) -> str:
        """Mechanism of delegation tokens."""
        return next((each for each in self.sign_in.mechanisms if each.startswith("SCRAM-")), SCRAM)

    async def close(self) -> None:
        """Close after the connections of all sessions: their delegation tokens are expired here."""
        if self._delegation is not None:
            await self._delegation.close()

    async def open_shared(self) -> Connection:
        return await self._open(self._properties, None)

    async def log_in(
        self, user: str, password: str, *, is_token: bool = False, shown_user: str | None = None
    ) -> Connection:
        """Connection of a user, or of the owner of a delegation token, which `shown_user` names.
        SASL_AUTHENTICATION_FAILED for a wrong password.
        """
        if "${" in user or "${" in password:
            # Such text is a reference to a secret of this machine, which a stranger must not reach.
            raise SaslAuthenticationFailed("a name or password with ${ cannot be used here")
        mechanism = self._scram if is_token else self.password_mechanism
        module = login_module(mechanism or "")
        if mechanism is None or module is None:
            raise InvalidConfig("users cannot sign in here with a name and password")
        options = {"username": user, "password": password}
        if is_token:
            options["tokenauth"] = "true"
        jaas = JaasEntry(f"{MODULES[module]}.{module}", "required", options).render()
        return await self._checked({MECHANISM: mechanism, JAAS: jaas}, shown_user or user)

    async def log_in_by_bearer(self, token: str) -> Connection:
        """Connection of the user of a bearer token. SASL_AUTHENTICATION_FAILED if the brokers refuse it."""
        try:
            bearer = read_bearer(token, self.sign_in.user_claim)
        except NoToken as error:
            raise SaslAuthenticationFailed(str(error)) from None
        left_ms = bearer.ends_s * 1_000 - self._clock.now_ms()
        if left_ms <= 0:
            raise SaslAuthenticationFailed("the token has expired")
        jaas = JaasEntry(BEARER_MODULE, "required", {"oauth.access.token": bearer.token}).render()
        found = await self._checked({MECHANISM: BEARER, JAAS: jaas}, bearer.user, by_client=True)
        found.ends_ms = self._clock.monotonic_ms() + left_ms
        return found

    async def log_in_for(self, user: str) -> Connection:
        """Connection of a user whom a certificate names, by a delegation token of that user."""
        if self._delegation is None:
            self._delegation = Delegation({**self._properties, "client.id": CLIENT_ID}, self._clock)
        delegation = self._delegation
        begun_ms = self._clock.monotonic_ms()
        token = await delegation.token_of(user)
        try:
            found = await self.log_in(token.token_id, token.password, is_token=True, shown_user=user)
        except BaseException:
            await delegation.expire(token.token_id)
            raise
        found.ends_ms = begun_ms + max(token.expires_ms - token.issued_ms - TOKEN_MARGIN_MS, 1_000.0)
        found.returning = partial(delegation.expire, token.token_id)
        return found

    async def _checked(self, login: Mapping[str, str], user: str, *, by_client: bool = False) -> Connection:
        async with self._checking:
            try:
                return await self._open({**self._without_login(), **login}, user, by_client=by_client)
            except SaslAuthenticationFailed:
                await asyncio.sleep(SIGN_IN_PAUSE_S)
                raise

    def _without_login(self) -> dict[str, Any]:
        """The properties without the console's own login, which no visitor borrows."""
        return {name: each for name, each in self._properties.items() if name not in LOGINS}

    async def _open(
        self, properties: Mapping[str, Any], user: str | None, *, by_client: bool = False
    ) -> Connection:
        made = Connection(properties, self._clock, user)
        try:
            if user is not None:
                await made.cluster.any_channel()
            made.view = await self._open_view(made.cluster, made.principal, by_client=by_client)
        except BaseException:
            await made.close()
            raise
        return made


def visitors_mechanisms(properties: Mapping[str, Any], listed: Sequence[str] = ()) -> tuple[str, ...]:
    """Mechanisms that visitors may sign in by: the listed ones, or that of the properties."""
    found = tuple(each.strip().upper() for each in listed) or (
        str(properties.get(MECHANISM, SCRAM)).strip().upper(),
    )
    unusable = [each for each in found if each != BEARER and login_module(each) not in MODULES]
    if listed and unusable:
        raise InvalidConfig(f"visitors cannot sign in with {unusable[0]}")
    return found


def needs_login(properties: Mapping[str, Any]) -> bool:
    """Whether the brokers ask for a login, and these properties have none."""
    return asks_for_login(properties) and not any(name in properties for name in LOGINS)


def asks_for_login(properties: Mapping[str, Any]) -> bool:
    protocol = str(properties.get("security.protocol", "PLAINTEXT")).strip().upper()
    return protocol in SecurityProtocol.__members__ and SecurityProtocol[protocol].is_sasl


def has_own_identity(properties: Mapping[str, Any]) -> bool:
    """Whether these properties have a login or a certificate."""
    return any(name.startswith(_IDENTITIES) for name in properties)


def reason_of(error: Exception) -> str:
    if not isinstance(error, KafkaError):
        return str(error)
    if isinstance(error, FORBIDDEN) and "authorized" not in error.message:
        return f"not authorized: {error.message}"
    return error.message
