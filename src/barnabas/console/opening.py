"""Settings of a console's process: the client's properties, who may come in, TLS of the page.

The properties are those of any Kafka client. The page's own keys are a broker's, for a listener named
`console`: `listener.name.console.ssl.keystore.location`, and `http.open`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.client.config.admin_keys import ADMIN_KEYS
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.lookup import broker_key
from barnabas.console.records.masking import Masks
from barnabas.console.schemas.given import messages_of_topics
from barnabas.console.schemas.registry import URL_KEY, Registry
from barnabas.console.server import Served
from barnabas.console.web.connections import (
    SignIn,
    asks_for_login,
    has_own_identity,
    needs_login,
    visitors_mechanisms,
)
from barnabas.console.web.console import ConsoleSettings
from barnabas.console.web.navigation import ClusterLink, base_of
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.reporting.metrics import Metrics
from barnabas.network.listener import is_loopback
from barnabas.security.http.access import HttpAccess
from barnabas.security.http.settings import HttpSecurity, http_security
from barnabas.security.identity.secret_references import UnresolvedSecret, resolve

LISTENER_NAME: Final = "console"
_PREFIX: Final = f"listener.name.{LISTENER_NAME}."
_OPEN: Final = "http.open"
_REGISTRY: Final = "schema.registry."
_OWN: Final = "console."
_READ_ONLY: Final = "console.read.only"
_PIPELINES: Final = "console.pipelines.url"
_OWN_KEYS: Final = (_READ_ONLY, _PIPELINES)
_CLIENT_AUTH: Final = f"{_PREFIX}ssl.client.auth"
_MECHANISMS: Final = f"{_PREFIX}sasl.enabled.mechanisms"
_USER_CLAIM: Final = f"{_PREFIX}sasl.oauthbearer.sub.claim.name"


class Opening:
    def __init__(self, properties: Mapping[str, Any], page: Mapping[str, str]) -> None:
        self._properties = properties
        self._page = page

    @classmethod
    def of(cls, given: Mapping[str, str], bootstrap: Sequence[Endpoint]) -> Opening:
        """Split the given properties into the client's and the page's."""
        client = {name: text for name, text in given.items() if name in ADMIN_KEYS}
        client["bootstrap.servers"] = ",".join(map(str, bootstrap))
        page = {
            name: text
            for name, text in given.items()
            if name.startswith((_PREFIX, _REGISTRY, _OWN)) or name == _OPEN
        }
        unknown = [name for name in page if name.startswith(_OWN) and name not in _OWN_KEYS]
        if unknown:
            raise InvalidConfig(f"unknown key {unknown[0]}; the console has {', '.join(_OWN_KEYS)}")
        return cls(client, page)

    @property
    def needs_token(self) -> bool:
        """Whether the console has a login that visitors must not borrow without a token."""
        return has_own_identity(self._properties) and not self._by_certificate

    def served(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        is_read_only: bool = False,
        token: str | None = None,
        pipelines_url: str | None = None,
        registry_url: str | None = None,
        proto_files: Sequence[Path] = (),
        proto_messages: Sequence[str] = (),
        broker_directories: Sequence[Path] = (),
        mcp_tools: Sequence[str] = (),
        edited: Sequence[str] = (),
        masks: Sequence[str] = (),
        name: str = "",
        clusters: Sequence[str] = (),
    ) -> Served:
        """INVALID_CONFIG if the address is open to other machines without TLS or without a sign-in."""
        values = self._page_values()
        security = self._security(endpoint, values, clock)
        sign_in = self._sign_in(values, token, is_tls=security.is_tls)
        acts_as_visitors = sign_in.by_certificate or needs_login(self._properties)
        asks = token is not None or acts_as_visitors
        if not security.is_local and not asks and not self._is_open:
            raise InvalidConfig(
                f"{endpoint} can be reached from other machines, and every visitor could change the cluster:"
                " give --token, or set http.open=true in --command-config to let every visitor in"
            )
        if mcp_tools and acts_as_visitors:
            raise InvalidConfig(
                "--mcp asks with the console's own login: give it one in --command-config (sasl.jaas.config)"
            )
        settings = ConsoleSettings(
            is_read_only=is_read_only or self._is_true(_READ_ONLY),
            token=token,
            pipelines_url=self._page.get(_PIPELINES) or pipelines_url,
            registry=self._registry(registry_url, clock),
            is_tls=security.is_tls,
            mcp_tools=frozenset(mcp_tools),
            edited=frozenset(edited),
            masks=Masks(masks),
            messages=messages_of_topics(proto_files, proto_messages),
            name=name,
            clusters=tuple(ClusterLink(each, f"{base_of(each)}/") for each in clusters),
        )
        return Served(self._properties, settings, security, tuple(broker_directories), sign_in)

    def _registry(self, url: str | None, clock: Clock) -> Registry | None:
        given = {name: text for name, text in self._page.items() if name.startswith(_REGISTRY)}
        found = url or given.get(URL_KEY)
        if found is None and given:
            raise InvalidConfig(f"{next(iter(given))} needs {URL_KEY}, or --schema-registry")
        return None if found is None else Registry.of(found, given, clock)

    def _is_true(self, name: str) -> bool:
        shown = self._page.get(name, "false").strip().lower()
        if shown not in ("true", "false"):
            raise InvalidConfig(f"{name} is true or false, not {shown!r}")
        return shown == "true"

    @property
    def _is_open(self) -> bool:
        return self._page.get(_PREFIX + _OPEN, self._page.get(_OPEN, "false")).strip().lower() == "true"

    @property
    def _by_certificate(self) -> bool:
        return self._page.get(_CLIENT_AUTH, "none").strip().lower() != "none"

    def _sign_in(self, values: dict[str, Any], token: str | None, *, is_tls: bool) -> SignIn:
        """Settings of the sign-in; INVALID_CONFIG for those that exclude each other."""
        listed = values.get(_MECHANISMS, ())
        sign_in = SignIn(
            visitors_mechanisms(self._properties, listed),
            self._by_certificate,
            values.get(_USER_CLAIM, "sub"),
        )
        if not sign_in.by_certificate:
            return sign_in
        if not is_tls:
            raise InvalidConfig(f"{_CLIENT_AUTH} needs TLS: set {_PREFIX}ssl.keystore.location")
        if token is not None:
            raise InvalidConfig(
                f"--token lets visitors use the console's own login, and with {_CLIENT_AUTH} each visitor"
                " acts as the user of a certificate: leave one of them out"
            )
        if not asks_for_login(self._properties) or needs_login(self._properties):
            raise InvalidConfig(
                f"{_CLIENT_AUTH}: the console acts for the users of certificates by delegation tokens. It"
                " needs a login by SASL that may create them: sasl.jaas.config in --command-config, and the"
                " right CreateTokens on these users"
            )
        return sign_in

    def _page_values(self) -> dict[str, Any]:
        values = BROKER_KEYS.defaults()
        for name, text in self._page.items():
            if name.startswith((_REGISTRY, _OWN)):
                continue
            try:
                values[name] = broker_key(name).parse(resolve(text))
            except UnresolvedSecret as error:
                raise InvalidConfig(f"{name}: {error}") from None
        return values

    def _security(self, endpoint: Endpoint, values: dict[str, Any], clock: Clock) -> HttpSecurity:
        is_local = is_loopback(endpoint.host)
        has_keys = any(values.get(f"{_PREFIX}ssl.keystore.{each}") for each in ("location", "key"))
        if not is_local and not has_keys and not self._is_open:
            raise InvalidConfig(
                f"{endpoint} can be reached from other machines and would be served without TLS: set"
                f" {_PREFIX}ssl.keystore.location in --command-config, or http.open=true to serve it as it is"
            )
        # The sign-in is the application's: cookies instead of HTTP's own passwords.
        found = http_security(
            {**values, _OPEN: True}, LISTENER_NAME, endpoint, clock, Metrics(), is_local=is_local
        )
        found.access = HttpAccess(None, None)
        return found
