"""How brokers reach each other: the settings of the inter-broker listener, read as a client's.

The listener says the protocol, `sasl.mechanism.inter.broker.protocol` the mechanism; stores and the login
module are the listener's own (`listener.name.…`) or the broker's. They are read for each connection, so that
certificates and passwords which were changed hold from the next one on.

References to secrets are refused: whoever may change a broker's settings would otherwise read its files.
"""

from __future__ import annotations

from typing import Any

from barnabas.client.security_settings import OPTIONS, SecuritySettings
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import for_listener
from barnabas.core.errors import InvalidConfig
from barnabas.node.login_modules import login_entry
from barnabas.security.secret_references import has_reference


def inter_broker_settings(config: BrokerConfig) -> SecuritySettings:
    """INVALID_CONFIG if they cannot be used. Blocks: a login module may stand in a file."""
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
