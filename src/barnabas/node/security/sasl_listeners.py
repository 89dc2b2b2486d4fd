"""SASL mechanisms of the listeners, and the gates that demand them.

They are built before a port is bound: a broker that cannot check credentials does not start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.stores.decoy_secret import get_or_create_decoy_secret
from barnabas.cluster.stores.delegation_tokens import DelegationTokens
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.client_entities import USERS, ClientEntities, EntityPath, Values
from barnabas.config.listeners import for_listener
from barnabas.core.addressing.endpoints import ListenerEndpoint
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.limits import UNAUTHENTICATED_FRAME_BYTES_MAX
from barnabas.core.optional_dependencies import install_command
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Background, Scheduler
from barnabas.core.tasks import Tasks
from barnabas.network.transport.exchange import Dispatch
from barnabas.node.security.login_modules import login_entry
from barnabas.requests.authentication import Mechanism, SaslGate
from barnabas.security.credentials.delegation_token import TokenTimes
from barnabas.security.credentials.scram_credential import ScramMechanism
from barnabas.security.credentials.user_credentials import UserCredentials
from barnabas.security.identity.secret_references import has_reference
from barnabas.security.sasl import gssapi, oauthbearer, plain
from barnabas.security.sasl.gssapi import GssapiAuthentication
from barnabas.security.sasl.kerberos_names import KerberosNames
from barnabas.security.sasl.outcome import Authentication
from barnabas.security.sasl.plain import PlainAuthentication, PlainUsers
from barnabas.security.sasl.scram import CredentialLookup, ScramAuthentication

logger = logging.getLogger(__name__)

OFFERED = (plain.NAME, *(each.mechanism_name for each in ScramMechanism), oauthbearer.NAME, gssapi.NAME)
_OWN_CALLBACKS = frozenset(
    {"PlainServerCallbackHandler", "ScramServerCallbackHandler", "OAuthBearerValidatorCallbackHandler"}
)
"""Kafka's own handler classes that the broker implements; it cannot run any other class."""

Start = Callable[[], Authentication]


class SaslListeners:
    def __init__(
        self,
        config: BrokerConfig,
        users: UserCredentials,
        tokens: DelegationTokens | None,
        *,
        clock: Clock,
        scheduler: Scheduler,
        background: Background,
        metrics: Metrics,
        tasks: Tasks,
    ) -> None:
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._background = background
        self._metrics = metrics
        self._tasks = tasks
        self.tokens = tokens
        self._users = users
        self._lookup = CredentialLookup(users.find, users.decoy if tokens is None else tokens.credential)
        self._mechanisms: dict[str, Mapping[str, Mechanism]] = {}

    async def open(self, listeners: Iterable[ListenerEndpoint]) -> None:
        """INVALID_CONFIG if a listener could not check credentials."""
        for key, text in self._config.given.items():
            if key.endswith("sasl.jaas.config") and has_reference(text):
                raise InvalidConfig(f"{key}: a broker follows no references; write the value itself")
        for listener in listeners:
            if listener.security_protocol.startswith("SASL_"):
                name = listener.listener_name
                enabled = for_listener(self._config.values, name, "sasl.enabled.mechanisms")
                if not enabled:
                    raise InvalidConfig(f"the listener {name} has no sasl.enabled.mechanisms")
                self._mechanisms[name] = {each: await self._mechanism(name, each) for each in enabled}
                if listener.security_protocol == "SASL_PLAINTEXT" and plain.NAME in enabled:
                    logger.warning(
                        "SASL/PLAIN passwords cross the network unencrypted on %s; use SASL_SSL", listener
                    )
                if self._users.is_empty and all(map(ScramMechanism.named, enabled)):
                    logger.warning(
                        "no client can log in on %s: there are no users; `barnabas user add NAME` adds one,"
                        " with --data-dir while the broker is down, or with --zookeeper",
                        listener,
                    )

    def gates(self, dispatch: Dispatch) -> dict[str, SaslGate]:
        values = self._config.values
        return {
            name: SaslGate(
                name,
                mechanisms,
                dispatch,
                frame_bytes_max=min(
                    for_listener(values, name, "sasl.server.max.receive.size"),
                    UNAUTHENTICATED_FRAME_BYTES_MAX,
                ),
                refusal_delay_ms=self._config.connection_failed_authentication_delay_ms,
                clock=self._clock,
                scheduler=self._scheduler,
                background=self._background,
                metrics=self._metrics,
            )
            for name, mechanisms in self._mechanisms.items()
        }

    async def _mechanism(self, listener: str, name: str) -> Mechanism:
        callbacks = for_listener(self._config.values, listener, "sasl.server.callback.handler.class", name)
        if callbacks and callbacks.rpartition(".")[2] not in _OWN_CALLBACKS:
            raise InvalidConfig(
                f"sasl.server.callback.handler.class of {name} on {listener} is {callbacks}, which cannot run"
                " here: the broker would accept other clients than that class; remove the key to do without"
            )
        session_ms_max = for_listener(self._config.values, listener, "connections.max.reauth.ms", name)
        start = await self._start(listener, name)
        return Mechanism(start, session_ms_max, blocks=name == gssapi.NAME)

    async def _start(self, listener: str, name: str) -> Start:
        if name == plain.NAME:
            users = await asyncio.to_thread(self._plain_users, listener)
            return lambda: PlainAuthentication(users)
        scram = ScramMechanism.named(name)
        if scram is not None:
            return lambda: ScramAuthentication(scram, self._lookup)
        if name == oauthbearer.NAME:
            return await self._oauthbearer(listener)
        if name == gssapi.NAME:
            return await asyncio.to_thread(self._gssapi, listener)
        raise InvalidConfig(
            f"sasl.enabled.mechanisms of {listener} names {name}, which this broker does not offer;"
            f" there are {', '.join(OFFERED)}"
        )

    def _plain_users(self, listener: str) -> PlainUsers:
        where = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
        entry = login_entry(self._config, listener, plain.NAME)
        if entry is None:
            raise InvalidConfig(f'PLAIN on {listener} needs its users: {where}=… user_NAME="password";')
        users = PlainUsers.of_options(entry.options)
        if not users:
            raise InvalidConfig(f'{where} names no user of PlainLoginModule: user_NAME="password"')
        return users

    def _gssapi(self, listener: str) -> Start:
        """Read the keytab."""
        values = self._config.values
        entry = login_entry(self._config, listener, gssapi.NAME)
        if entry is None:
            raise InvalidConfig(
                f"GSSAPI, which is Kafka's default for sasl.enabled.mechanisms, needs the broker's key on"
                f" {listener}: listener.name.{listener.lower()}.gssapi.sasl.jaas.config="
                "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=… principal=…;"
                f" or name other mechanisms; there are {', '.join(OFFERED)}"
            )
        try:
            from barnabas.node.security.kerberos import Acceptor  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise InvalidConfig(
                f"GSSAPI on {listener} needs an extra; install it with {install_command('gssapi')} ({error})"
            ) from None
        acceptor = Acceptor(entry.options, values["sasl.kerberos.service.name"], self._clock)
        names = KerberosNames(values["sasl.kerberos.principal.to.local.rules"], acceptor.realm)
        return lambda: GssapiAuthentication(acceptor.context(), names)

    async def _oauthbearer(self, listener: str) -> Start:
        try:
            from barnabas.node.security.jwks import TokenVerifier, check_key_set_url  # noqa: PLC0415 - an extra
            from barnabas.security.sasl.bearer_tokens import TokenRules  # noqa: PLC0415 - an extra
            from barnabas.security.sasl.oauthbearer import BearerAuthentication  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise InvalidConfig(
                f"OAUTHBEARER on {listener} needs an extra; install it with"
                f" {install_command('security')} ({error})"
            ) from None

        def setting(key: str) -> object:
            return for_listener(self._config.values, listener, f"sasl.oauthbearer.{key}", oauthbearer.NAME)

        url = setting("jwks.endpoint.url")
        if not isinstance(url, str):
            raise InvalidConfig(
                f"OAUTHBEARER on {listener} has no keys to verify a token: set"
                " sasl.oauthbearer.jwks.endpoint.url"
            )
        check_key_set_url(url)
        issuer, audiences = setting("expected.issuer"), setting("expected.audience")
        rules = TokenRules(
            issuer=None if issuer is None else str(issuer),
            audiences=tuple(audiences) if isinstance(audiences, list | tuple) else (),
            clock_skew_ms=_whole(setting("clock.skew.seconds")) * 1_000,
            subject_claim=str(setting("sub.claim.name")),
            scope_claim=str(setting("scope.claim.name")),
        )
        verifier = TokenVerifier(url, rules, self._clock, self._tasks.start)
        await verifier.load(_whole(setting("jwks.endpoint.retry.backoff.ms")))
        self._scheduler.every(max(1_000, _whole(setting("jwks.endpoint.refresh.ms"))), verifier.refresh)
        return lambda: BearerAuthentication(verifier.verify)


async def follow_users(
    clients: ClientEntities, znodes: Coordination, listeners: Iterable[ListenerEndpoint]
) -> UserCredentials:
    """Credentials of all users, kept up to date."""
    is_asked = any(each.security_protocol.startswith("SASL_") for each in listeners)
    users = UserCredentials(await get_or_create_decoy_secret(znodes) if is_asked else b"")

    def changed(path: EntityPath, values: Values) -> None:
        if len(path) == 1 and path[0].type == USERS and path[0].name is not None:
            users.put(path[0].name, values)

    clients.on_change(changed)
    return users


def make_delegation_tokens(
    config: BrokerConfig,
    znodes: Coordination,
    clock: Clock,
    background: Background,
    metrics: Metrics,
) -> DelegationTokens | None:
    """None if no secret is set: the broker then has no delegation tokens."""
    values = config.values
    secret = values["delegation.token.secret.key"] or values["delegation.token.master.key"]
    if not secret:
        return None
    times = TokenTimes(values["delegation.token.max.lifetime.ms"], values["delegation.token.expiry.time.ms"])
    return DelegationTokens(znodes, clock, secret, times, background, metrics)


def remove_expired_tokens(
    tokens: DelegationTokens, config: BrokerConfig, scheduler: Scheduler, tasks: Tasks
) -> None:
    scheduler.every(
        config.values["delegation.token.expiry.check.interval.ms"],
        lambda: tasks.start(tokens.sweep_expired()),
    )


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
