"""Brokers as each other's clients: which settings count."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.client.security.settings import PLAINTEXT, SecurityProtocol
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.lookup import broker_key
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import InvalidConfig
from barnabas.node.security.inter_broker_security import inter_broker_settings

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def config(protocol: str, given: dict[str, str]) -> BrokerConfig:
    """Without the check that this version serves what is asked for."""
    values: dict[str, Any] = BROKER_KEYS.defaults()
    values |= {name: broker_key(name).parse(text) for name, text in given.items()}
    listener = ListenerEndpoint("INTERNAL", Endpoint("127.0.0.1", 9093), protocol)
    return cast("BrokerConfig", SimpleNamespace(values=values, inter_broker_listener=listener))


def test_brokers_without_security_talk_as_they_did() -> None:
    settings = inter_broker_settings(config("PLAINTEXT", {}))
    assert settings.protocol is SecurityProtocol.PLAINTEXT
    assert settings.secured() == PLAINTEXT


def test_the_listeners_own_login_module_wins() -> None:
    given = {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="any" password="other";',
        "listener.name.internal.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required username="broker" password="s3cret" user_broker="s3cret";'
        ),
        "listener.name.internal.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    settings = inter_broker_settings(config("SASL_PLAINTEXT", given))
    login = settings.secured().login
    assert login is not None
    assert next(login.begin("host")) == b"\0broker\0s3cret"
    assert "s3cret" not in repr(settings)


def test_stores_are_the_listeners_or_the_brokers() -> None:
    given = {
        "ssl.truststore.location": "broker.pem",
        "ssl.keystore.location": "key.pem",
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "listener.name.internal.ssl.truststore.location": "internal.pem",
        "listener.name.internal.ssl.endpoint.identification.algorithm": "",
    }
    tls = inter_broker_settings(config("SSL", given)).tls
    assert tls is not None
    assert (tls.trusted.location, tls.keys.location) == (Path("internal.pem"), Path("key.pem"))
    assert not tls.checks_host
    assert tls.versions == ("TLSv1.2", "TLSv1.3")


def test_a_broker_follows_no_references() -> None:
    jaas = f'{PLAIN_MODULE} required username="a" password="${{file:/etc/passwd}}";'
    given = {"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.jaas.config": jaas}
    with pytest.raises(InvalidConfig, match=r"sasl\.jaas\.config: a broker follows no references"):
        inter_broker_settings(config("SASL_SSL", given))
