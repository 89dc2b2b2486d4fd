"""Client security settings for connections between brokers, from the inter-broker listener.

The listener gives the protocol, `sasl.mechanism.inter.broker.protocol` the mechanism. Stores and the login
module are the listener's own (`listener.name.…`) or the broker's. They are read for each connection, so that
changed certificates and passwords hold from the next one on.

References to secrets are rejected: otherwise any user who may change a broker's settings could read its
files.
"""

from __future__ import annotations

from typing import Any

from barnabas.client.security.settings import OPTIONS, SecuritySettings
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import for_listener
from barnabas.core.errors import InvalidConfig
from barnabas.node.security.login_modules import login_entry
from barnabas.security.identity.secret_references import has_reference


def inter_broker_settings(config: BrokerConfig) -> SecuritySettings:
    """INVALID_CONFIG if the settings are unusable. Blocks: the login module may be in a file."""
    listener, values = config.inter_broker_listener, config.values
    mechanism = for_listener(values, listener.listener_name, "sasl.mechanism.inter.broker.protocol")
    found = {
        name: for_listener(values, listener.listener_name, name, mechanism)
        for name in OPTIONS & values.keys()
    }
    if found["sasl.jaas.config"] is None and listener.security_protocol.startswith("SASL_"):
        entry = login_entry(config, listener.listener_name, mechanism)
        found["sasl.jaas.config"] = None if entry is None else entry.render()
    given = {name: _text(value) for name, value in found.items() if value is not None}
    for name, text in given.items():
        if has_reference(text):
            raise InvalidConfig(f"{name}: a broker follows no references")
    return SecuritySettings.parse(
        {**given, "security.protocol": listener.security_protocol, "sasl.mechanism": mechanism}
    )


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple | list) else str(value)
