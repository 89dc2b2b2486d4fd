"""TLS settings of one listener.

Each key may be set for the broker (`ssl.*`) and for a listener alone (`listener.name.<name>.ssl.*`), which
wins. `ssl.client.auth` is an exception, as in Kafka. Clients of a SASL_SSL listener authenticate by SASL, so
there only the listener's own key asks for a certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.config.listeners import for_listener
from barnabas.core.addressing.endpoints import ListenerEndpoint


@dataclass(frozen=True, slots=True)
class Store:
    """A key store or a trust store: a file, or PEM text in the settings themselves."""

    prefix: str
    """Prefix of its keys for messages: `ssl.keystore`."""
    type: str
    location: Path | None
    password: str | None = field(repr=False)
    certificates: str | None = field(repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.certificates is not None or self.key is not None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    listener_name: str
    client_auth: str
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    mapping_rules: str
    keys: Store
    trusted: Store
    may_change_name: bool
    may_change_alternative_names: bool

    @classmethod
    def of(cls, values: Mapping[str, Any], listener: ListenerEndpoint) -> TlsSettings:
        """Settings of a listener, from the values of all keys."""
        name = listener.listener_name

        def value(key: str) -> Any:
            return for_listener(values, name, key)

        def path(key: str) -> Path | None:
            text = value(key)
            return Path(text) if text else None

        own_client_auth = f"listener.name.{name.lower()}.ssl.client.auth"
        asks_all = listener.security_protocol == "SSL"
        return cls(
            listener_name=name,
            client_auth=value("ssl.client.auth") if asks_all else values.get(own_client_auth, "none"),
            protocols=tuple(value("ssl.enabled.protocols")),
            cipher_suites=tuple(value("ssl.cipher.suites")),
            mapping_rules=value("ssl.principal.mapping.rules"),
            keys=Store(
                "ssl.keystore",
                value("ssl.keystore.type").upper(),
                path("ssl.keystore.location"),
                value("ssl.keystore.password"),
                value("ssl.keystore.certificate.chain"),
                value("ssl.keystore.key"),
                value("ssl.key.password"),
            ),
            trusted=Store(
                "ssl.truststore",
                value("ssl.truststore.type").upper(),
                path("ssl.truststore.location"),
                value("ssl.truststore.password"),
                value("ssl.truststore.certificates"),
            ),
            may_change_name=value("ssl.allow.dn.changes"),
            may_change_alternative_names=value("ssl.allow.san.changes"),
        )
