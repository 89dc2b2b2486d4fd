"""What protects the service's REST interface, out of a properties file: `http.*` and `listener.name.rest.*`.

The keys are a broker's, under a listener of the name `rest`; what else is in the file is somebody else's.
Secrets may be references, which are followed here, where the listener is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.config.rows import BROKER_KEYS
from barnabas.config.rows.lookup import broker_key
from barnabas.core.clock import Clock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig
from barnabas.core.metrics import Metrics
from barnabas.network.listener import is_loopback
from barnabas.security.http_security import HttpSecurity, http_security
from barnabas.security.secret_references import UnresolvedSecret, resolve

LISTENER_NAME: Final = "rest"
_PREFIXES: Final = ("http.", f"listener.name.{LISTENER_NAME}.")


def rest_security(properties: Mapping[str, str], endpoint: Endpoint, clock: Clock) -> HttpSecurity:
    """INVALID_CONFIG says what is wrong, or missing at that address."""
    values = BROKER_KEYS.defaults()
    for name, text in properties.items():
        if name.startswith(_PREFIXES):
            try:
                values[name] = broker_key(name).parse(resolve(text))
            except UnresolvedSecret as error:
                raise InvalidConfig(f"{name}: {error}") from None
    is_local = is_loopback(endpoint.host)
    return http_security(values, LISTENER_NAME, endpoint, clock, Metrics(), is_local=is_local)
