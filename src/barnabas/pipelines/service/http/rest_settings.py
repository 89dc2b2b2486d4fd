"""Security settings of the REST interface, from a properties file: `http.*` and `listener.name.rest.*`.

The keys are those of a broker, for a listener named `rest`; other keys in the file are ignored. Secrets may
be references, which are resolved here, where the listener is made.

On loopback the interface requires a token (`security.http.token`), unless the file configures authentication
or declares the interface open (`http.open=true`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.lookup import broker_key
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.reporting.metrics import Metrics
from barnabas.network.listener import is_loopback
from barnabas.security.http.settings import HttpSecurity, http_security
from barnabas.security.http.token import LocalToken, kept_token
from barnabas.security.identity.secret_references import UnresolvedSecret, resolve

LISTENER_NAME: Final = "rest"
OPEN: Final = "http.open"
TOKENS: Final = "http.tokens.file"
_PREFIXES: Final = ("http.", f"listener.name.{LISTENER_NAME}.")


@contextmanager
def protected_rest(
    properties: Mapping[str, str], endpoint: Endpoint, clock: Clock
) -> Iterator[tuple[HttpSecurity, LocalToken | None]]:
    """Security of a bound address, with its token if the settings configure no authentication.

    INVALID_CONFIG names the invalid setting, or the one that the address requires.
    """
    security = rest_security(properties, endpoint, clock)
    given = properties.get(f"listener.name.{LISTENER_NAME}.{OPEN}", properties.get(OPEN, "false"))
    is_wanted_open = given.strip().lower() == "true"
    if not security.is_local or not security.access.is_open or is_wanted_open:
        yield security, None
        return
    with kept_token(endpoint.port) as token:
        yield rest_security({**properties, TOKENS: str(token.file)}, endpoint, clock), token


def rest_security(properties: Mapping[str, str], endpoint: Endpoint, clock: Clock) -> HttpSecurity:
    """Security by the settings alone. INVALID_CONFIG names the invalid or missing setting."""
    values = BROKER_KEYS.defaults()
    for name, text in properties.items():
        if name.startswith(_PREFIXES):
            try:
                values[name] = broker_key(name).parse(resolve(text))
            except UnresolvedSecret as error:
                raise InvalidConfig(f"{name}: {error}") from None
    is_local = is_loopback(endpoint.host)
    return http_security(values, LISTENER_NAME, endpoint, clock, Metrics(), is_local=is_local)
