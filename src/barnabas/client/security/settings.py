"""Security settings of clients: Kafka's `security.protocol`, `ssl.*` and `sasl.*`.

Settings are text that travels, to executors and into plans. Secrets in them are references (`${env:NAME}`,
`${file:path:key}`). Only `secured` follows references and reads files, on the machine that connects. Neither
a `repr` nor an error shows a value.

Some settings of Kafka name Java classes. No setting loads code here. A login module only selects the
mechanism of its options. A setting that can only mean code is rejected, unless it names Kafka's own class for
what this client does anyway.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from barnabas.client.security.tls_context import TlsSettings, tls_context
from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file
from barnabas.core.optional_dependencies import install_command
from barnabas.security.identity.secret_references import REFERENCE, UnresolvedSecret, resolve
from barnabas.security.sasl.client import (
    GSSAPI,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM_DIGESTS,
    Login,
    oauthbearer,
    plain,
    scram,
)
from barnabas.security.sasl.jaas import parse_jaas

SSL_OPTIONS: Final = frozenset(
    {
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.endpoint.identification.algorithm",
        # PEM files under librdkafka's names
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
    }
)
SASL_OPTIONS: Final = frozenset(
    {
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.kerberos.service.name",
    }
)
OPTIONS: Final = SSL_OPTIONS | SASL_OPTIONS | {"security.protocol"}
HARMLESS: Final = frozenset(
    {
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
    }
)
"""Settings without effect here: of Java alone, or of background logins."""
CODE_OPTIONS: Final = frozenset(
    {
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "security.providers",
        "ssl.engine.factory.class",
    }
)
SECRETS: Final = frozenset(
    {
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)

_LOGIN_MODULES: Final = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": tuple(SCRAM_DIGESTS),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
    "Krb5LoginModule": (GSSAPI,),
}
_OWN_CLASSES: Final = frozenset(
    f"org.apache.kafka.common.security.{name}"
    for name in (
        "authenticator.DefaultLogin",
        "authenticator.SaslClientCallbackHandler",
        "oauthbearer.OAuthBearerLoginCallbackHandler",
        "oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        "scram.internals.ScramSaslClientCallbackHandler",
    )
)
"""Kafka's own classes for behaviour that this client has anyway. Kafka's manual tells users to name them."""
_TOKEN_BYTES_MAX: Final = 64 * 1024
_TOKEN_OPTION: Final = "oauth.access.token"  # noqa: S105 - the name that Strimzi's login module gave it


class SecurityProtocol(Enum):
    PLAINTEXT = (False, False)
    SSL = (True, False)
    SASL_PLAINTEXT = (False, True)
    SASL_SSL = (True, True)

    @property
    def is_tls(self) -> bool:
        return self.value[0]

    @property
    def is_sasl(self) -> bool:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class SaslSettings:
    mechanism: str
    jaas_config: str | None = field(default=None, repr=False)
    token_url: str | None = None
    service_name: str | None = None


@dataclass(frozen=True, slots=True)
class Secured:
    """TLS context and login of a connection."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None


PLAINTEXT: Final = Secured()


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SecuritySettings:
        """Parse client properties; those without a security prefix are ignored. INVALID_CONFIG names the
        problem.
        """
        for name, text in given.items():
            _check_name(name, text)
        text = given.get("security.protocol", "PLAINTEXT").strip().upper()
        if text not in SecurityProtocol.__members__:
            raise InvalidConfig(
                f"security.protocol is one of {', '.join(SecurityProtocol.__members__)}, not {text!r}"
            )
        protocol = SecurityProtocol[text]
        return cls(
            protocol,
            TlsSettings.parse(given) if protocol.is_tls else None,
            _sasl(given) if protocol.is_sasl else None,
        )

    def secured(self, token: Callable[[], str] | None = None) -> Secured:
        """TLS context and login from these settings. Follows references and reads files.

        `token` supplies OAUTHBEARER with a fresh token for each authentication, instead of the configured
        file.
        """
        try:
            return Secured(
                None if self.tls is None else tls_context(self.tls),
                None if self.sasl is None else _login(self.sasl, token),
            )
        except UnresolvedSecret as error:
            raise InvalidConfig(str(error)) from None


def loads_code(name: str, text: str) -> bool:
    """True for a setting that makes Kafka load a class, other than its own class for behaviour of this
    client.
    """
    return name in CODE_OPTIONS and text.strip() not in _OWN_CLASSES


def _check_name(name: str, text: str) -> None:
    if not name.startswith(("ssl.", "sasl.", "security.")) or name in OPTIONS | HARMLESS:
        return
    if name in CODE_OPTIONS:
        if not loads_code(name, text):
            return
        raise InvalidConfig(f"{name} names a class, and no setting loads code here: leave it out")
    raise InvalidConfig(f"{name} is not a setting of this client")


def _sasl(given: Mapping[str, str]) -> SaslSettings:
    mechanism = given.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        raise InvalidConfig(f"sasl.mechanism is one of {', '.join(MECHANISMS)} here, not {mechanism!r}")
    jaas, url = given.get("sasl.jaas.config"), given.get("sasl.oauthbearer.token.endpoint.url")
    if jaas is None and "sasl.mechanism" not in given:
        raise InvalidConfig(
            f"sasl.mechanism is one of {', '.join(MECHANISMS)}; the default, GSSAPI, needs sasl.jaas.config"
        )
    if jaas is None and mechanism != OAUTHBEARER:
        raise InvalidConfig(f"sasl.mechanism={mechanism} needs sasl.jaas.config")
    settings = SaslSettings(mechanism, jaas, url, given.get("sasl.kerberos.service.name"))
    if jaas is not None and REFERENCE.fullmatch(jaas.strip()) is None:
        _login_options(settings)
    return settings


def _login_options(settings: SaslSettings) -> Mapping[str, str]:
    """Options of the login module, which must belong to this mechanism."""
    jaas = settings.jaas_config or ""
    is_reference = REFERENCE.fullmatch(jaas.strip()) is not None
    entries = parse_jaas(resolve(jaas.strip()) if is_reference else jaas)
    if len(entries) != 1:
        raise InvalidConfig("sasl.jaas.config of a client must have exactly one login module")
    (entry,) = entries
    if settings.mechanism not in _LOGIN_MODULES.get(entry.module_name, ()):
        raise InvalidConfig(
            f"sasl.jaas.config: the login module for {settings.mechanism} is"
            f" {login_module(settings.mechanism)}, not {entry.module_name}"
        )
    return entry.options


def login_module(mechanism: str) -> str | None:
    """Simple name of the Java login module for a mechanism."""
    return next((name for name, kinds in _LOGIN_MODULES.items() if mechanism in kinds), None)


def _login(settings: SaslSettings, token: Callable[[], str] | None) -> Login:
    mechanism = settings.mechanism
    options: Mapping[str, str] = {}
    if settings.jaas_config is not None:
        # Resolved after parsing: a secret may contain any character, quotes included.
        options = {name: resolve(value) for name, value in _login_options(settings).items()}
    if mechanism == OAUTHBEARER:
        extensions = {
            name.removeprefix("extension_"): value
            for name, value in options.items()
            if name.startswith("extension_")
        }
        given = options.get(_TOKEN_OPTION)
        fresh = token or ((lambda: given) if given else _token_file(settings.token_url))
        return Login(mechanism, lambda _: oauthbearer(fresh(), extensions))
    if mechanism == GSSAPI:
        return _kerberos(options, options.get("serviceName") or settings.service_name)
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise InvalidConfig(f"sasl.jaas.config has no {missing[0]}")
    user, password = options["username"], options["password"]
    if mechanism == PLAIN:
        return Login(mechanism, lambda _: plain(user, password))
    by_token = {"tokenauth": "true"} if options.get("tokenauth", "").lower() == "true" else {}
    return Login(mechanism, lambda _: scram(mechanism, user, password, extensions=by_token))


def _kerberos(options: Mapping[str, str], service_name: str | None) -> Login:
    if not service_name:
        raise InvalidConfig("sasl.mechanism=GSSAPI needs sasl.kerberos.service.name, such as kafka")
    try:
        from barnabas.client.security.kerberos import initiate  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise InvalidConfig(
            f"GSSAPI needs {error.name}; install it with {install_command('gssapi')}"
        ) from None
    return Login(GSSAPI, lambda host: initiate(options, service_name, host))


def _token_file(url: str | None) -> Callable[[], str]:
    """Reader of a token file. It is read for each authentication, so that a renewed token counts."""
    if url is None:
        raise InvalidConfig(
            "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, a file: URL, or"
            f" {_TOKEN_OPTION} in sasl.jaas.config"
        )
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise InvalidConfig(
            "sasl.oauthbearer.token.endpoint.url must be a file: URL, since tokens are not fetched"
        )
    path = Path(unquote(parts.path))

    def read() -> str:
        try:
            return read_regular_file(path, _TOKEN_BYTES_MAX).decode("ascii", errors="replace").strip()
        except OSError as error:
            raise InvalidConfig(f"the token in {path} cannot be read: {error.strerror}") from None

    return read
