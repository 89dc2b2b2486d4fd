"""Security of HTTP interfaces, from the settings of a listener: `metrics` in a broker, `rest` in the pipeline
service.

An address that other machines can reach needs TLS and authentication. Without settings for both it is not
served, unless the settings open it explicitly. On loopback neither is required; TLS is used there if the
listener has keys of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.config.listeners import for_listener
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.optional_dependencies import install_command
from barnabas.core.reporting.metrics import Metrics
from barnabas.security.http.access import HttpAccess

if TYPE_CHECKING:
    from barnabas.security.tls.context import ListenerContext
    from barnabas.security.tls.listeners import TlsListeners

logger = logging.getLogger(__name__)

RENEWAL_PERIOD_MS: Final = 5_000.0
_KEYS: Final = ("ssl.keystore.location", "ssl.keystore.key")
_PROTOCOL: Final = "SASL_SSL"
"""The interface asks for certificates if the listener's own `ssl.client.auth` demands them."""


class HttpSecurity:
    """`access` authenticates clients, `context` is for the next handshake."""

    def __init__(
        self,
        name: str,
        values: Mapping[str, Any],
        access: HttpAccess,
        tls: TlsListeners | None,
        clock: Clock,
        *,
        is_local: bool,
    ) -> None:
        self.access = access
        self.is_local = is_local
        self.is_tls = tls is not None
        self._name = name
        self._values = values
        self._tls = tls
        self._clock = clock
        self._renewed_ms = clock.monotonic_ms()

    @property
    def scheme(self) -> str:
        return "https" if self.is_tls else "http"

    def context(self) -> ListenerContext | None:
        if self._tls is None:
            return None
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._renewed_ms >= RENEWAL_PERIOD_MS:
            self._renewed_ms = now_ms
            self._tls.renew(self._values)
        return self._tls.by_name[self._name].current


def http_security(
    values: Mapping[str, Any],
    name: str,
    endpoint: Endpoint,
    clock: Clock,
    metrics: Metrics,
    *,
    is_local: bool,
) -> HttpSecurity:
    """Security of the listener `name` at that address; INVALID_CONFIG names the missing settings."""
    own = f"listener.name.{name}."
    own_keys = any(values.get(own + key) for key in _KEYS)
    has_keys = own_keys or (not is_local and any(for_listener(values, name, key) for key in _KEYS))
    wants_certificates = has_keys and values.get(f"{own}ssl.client.auth", "none") != "none"
    access = HttpAccess.of(values, name, by_certificate=wants_certificates)
    if not is_local and (access.is_open or not has_keys):
        if not for_listener(values, name, "http.open"):
            raise InvalidConfig(
                f"{endpoint} can be reached from other machines and would be served without"
                f" {'TLS' if not has_keys else 'authentication'}: for TLS set {own}ssl.keystore.location; for"
                f" authentication http.users.file, http.tokens.file, or {own}ssl.client.auth=required with"
                f" {own}ssl.truststore.location; or set http.open=true to serve it as it is"
            )
        logger.warning(
            "%s can be reached from other machines %s",
            endpoint,
            "by every client" if access.is_open else "and passwords to it travel in the clear",
        )
    tls = _open_tls(values, ListenerEndpoint(name, endpoint, _PROTOCOL), clock, metrics) if has_keys else None
    return HttpSecurity(name, values, access, tls, clock, is_local=is_local)


def _open_tls(
    values: Mapping[str, Any], listener: ListenerEndpoint, clock: Clock, metrics: Metrics
) -> TlsListeners:
    try:
        from barnabas.security.tls.listeners import TlsListeners  # noqa: PLC0415 - most do without
    except ImportError as error:
        raise InvalidConfig(
            f"TLS needs {error.name}; install it with {install_command('security')}"
        ) from None
    return TlsListeners((listener,), values, clock, metrics)
