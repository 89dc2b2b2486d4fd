"""TLS listeners of a broker: their contexts, and the renewal of certificates while it runs.

A context is made from settings and files. When either changes, a new one is made, and later handshakes use
it; existing connections stay. Unusable settings or files change nothing: the previous context stays, and the
log shows an error.

`renew` compares files by time and size; its caller runs it periodically. An unusable state is tried again
each time: new read permission, or a free descriptor, shows in neither.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from barnabas.core.addressing.endpoints import ListenerEndpoint
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.metrics import Metrics
from barnabas.security.tls.context import ListenerContext, make_context
from barnabas.security.tls.settings import TlsSettings

logger = logging.getLogger(__name__)

SWEEP_PERIOD_MS: Final = 5_000.0
DAY_MS: Final = 86_400_000
EXPIRY_WARNING_DAYS: Final = 30

Stamp = tuple[tuple[int, int] | None, ...]
"""Time and size of each file."""


class TlsListener:
    """One listener; `current` serves the next handshake."""

    def __init__(self, endpoint: ListenerEndpoint, values: Mapping[str, Any]) -> None:
        self.endpoint = endpoint
        settings = TlsSettings.of(values, endpoint)
        self._used = settings, _stamp_of(settings)
        self._complaint: tuple[object, str] | None = None
        self.current: ListenerContext = make_context(settings)

    def check(self, values: Mapping[str, Any]) -> None:
        """INVALID_CONFIG if these settings cannot replace the current ones."""
        settings = TlsSettings.of(values, self.endpoint)
        if settings != self.current.settings:
            _check_successor(self.current.certificate, make_context(settings))

    def renew(self, values: Mapping[str, Any]) -> bool:
        """Use the current settings and files if they have changed. INVALID_CONFIG if they are unusable,
        raised once for each state of them."""
        settings = TlsSettings.of(values, self.endpoint)
        seen = settings, _stamp_of(settings)
        if seen == self._used:
            self._complaint = None
            return False
        try:
            self.current = make_context(settings)
        except InvalidConfig as error:
            complaint = seen, error.message
            if complaint == self._complaint:
                return False
            self._complaint = complaint
            raise
        self._used, self._complaint = seen, None
        return True


class TlsListeners:
    """All TLS listeners of a broker; `values` are those of all keys."""

    def __init__(
        self,
        listeners: tuple[ListenerEndpoint, ...],
        values: Mapping[str, Any],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._clock = clock
        self._warned_ms: dict[str, float] = {}
        self.by_name = {
            each.listener_name: TlsListener(each, values)
            for each in listeners
            if each.security_protocol.endswith("SSL")
        }
        for name, listener in self.by_name.items():
            metrics.gauge(
                "barnabas_tls_certificate_expires_in_seconds",
                "Remaining validity of the certificate of a listener; negative after its expiry.",
                lambda listener=listener: (listener.current.expires_ms - clock.now_ms()) / 1_000,  # type: ignore[misc]
                listener=name,
            )
        self.warn_of_expiry()

    def check(self, values: Mapping[str, Any]) -> None:
        """INVALID_CONFIG if one of the listeners could not use these settings."""
        for listener in self.by_name.values():
            listener.check(values)

    def renew(self, values: Mapping[str, Any]) -> None:
        """Apply changes of the settings and the files."""
        for name, listener in self.by_name.items():
            with sweeping("the certificates of a listener", name):
                try:
                    if listener.renew(values):
                        until = listener.current.certificate.not_valid_after_utc
                        logger.info("the listener %s has new certificates, valid until %s", name, until)
                except InvalidConfig as error:
                    logger.error("the previous certificates stay in use: %s", error.message)
        self.warn_of_expiry()

    def warn_of_expiry(self) -> None:
        """Log the expiry once a day for each listener."""
        now_ms = self._clock.now_ms()
        for name, listener in self.by_name.items():
            left_days = (listener.current.expires_ms - now_ms) / DAY_MS
            if left_days > EXPIRY_WARNING_DAYS or now_ms - self._warned_ms.get(name, -inf) < DAY_MS:
                continue
            self._warned_ms[name] = now_ms
            if left_days < 0:
                logger.error("the certificate of the listener %s has expired; replace its key store", name)
            else:
                logger.warning("the certificate of the listener %s expires in %.1f days", name, left_days)


def _stamp_of(settings: TlsSettings) -> Stamp:
    return tuple(_file_stamp(store.location) for store in (settings.keys, settings.trusted))


def _file_stamp(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _check_successor(before: x509.Certificate, after: ListenerContext) -> None:
    """A certificate that a change of settings installs must have the same names as the previous one, as in
    Kafka. Clients and other brokers check these names."""
    settings, certificate = after.settings, after.certificate
    if not settings.may_change_name and certificate.subject != before.subject:
        raise InvalidConfig(
            f"the new certificate of the listener {settings.listener_name} is of"
            f" {certificate.subject.rfc4514_string()}, the present one of {before.subject.rfc4514_string()};"
            " ssl.allow.dn.changes allows that"
        )
    if not settings.may_change_alternative_names and not _names(before) <= _names(certificate):
        missing = sorted(_names(before) - _names(certificate))
        raise InvalidConfig(
            f"the new certificate of the listener {settings.listener_name} lacks {', '.join(missing)} of the"
            " present one; ssl.allow.san.changes allows that"
        )


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(each.value) for each in extension.value}
