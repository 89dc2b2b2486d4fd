"""Credentials and TLS for the broker's ZooKeeper connection.

The settings are Kafka's (`zookeeper.ssl.…`) and ZooKeeper's own, which Kafka's brokers take as Java
properties: a JAAS file (`java.security.auth.login.config`) whose section `Client` has the name and the
password.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

from barnabas.client.security.tls_context import TlsSettings, tls_context
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.errors import InvalidConfig
from barnabas.node.security.login_modules import jaas_sections
from barnabas.security.sasl.jaas import JaasEntry

logger = logging.getLogger(__name__)

_LOGIN_MODULE: Final = "DigestLoginModule"
_STORE_KEYS: Final = (
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
)


def zookeeper_login(config: BrokerConfig) -> tuple[str, str] | None:
    """Name and password for SASL; None without a login. Reads the JAAS file."""
    values = config.values
    path = values["java.security.auth.login.config"]
    if not path or not values["zookeeper.sasl.client"]:
        return None
    where, sections = f"java.security.auth.login.config: {path}", jaas_sections(config)
    section = values["zookeeper.sasl.clientconfig"]
    if section not in sections:
        logger.warning("%s has no section %s: the broker does not log in to ZooKeeper", where, section)
        return None
    return _name_and_password(sections[section], f"{where}: the section {section}")


def _name_and_password(entries: list[JaasEntry], where: str) -> tuple[str, str]:
    options = next((each.options for each in entries if each.module_name == _LOGIN_MODULE), None)
    if options is None:
        raise InvalidConfig(f"{where} has no {_LOGIN_MODULE}, which brokers need to log in to ZooKeeper")
    if not options.get("username") or not options.get("password"):
        raise InvalidConfig(f"{where} has no username, or no password")
    return options["username"], options["password"]


def zookeeper_tls(config: BrokerConfig) -> Callable[[], ssl.SSLContext] | None:
    """Maker of a TLS context from the current stores; INVALID_CONFIG if they are unusable now. Blocks."""
    if not config.zookeeper_ssl_client_enable:
        return None
    given = {
        key: text for key in _STORE_KEYS if (text := _text(config.values[f"zookeeper.{key}"])) is not None
    }

    def make() -> ssl.SSLContext:
        try:
            return tls_context(TlsSettings.parse(given))
        except InvalidConfig as error:
            raise InvalidConfig(f"TLS to ZooKeeper (zookeeper.…): {error.message}") from None

    make()
    return make


def _text(value: Any) -> str | None:
    return ",".join(value) if isinstance(value, tuple | list) else value
