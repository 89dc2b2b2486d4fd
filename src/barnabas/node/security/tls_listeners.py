"""TLS listeners of a broker: opened at the start, and renewed after each change of settings and periodically
(`security.tls.listeners`)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.optional_dependencies import install_command
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.network.handshakes import ContextSource


def open_tls(
    config: BrokerConfig, configs: ConfigRepository, clock: Clock, scheduler: Scheduler, metrics: Metrics
) -> Mapping[str, ContextSource]:
    """Source of the TLS contexts of each listener, by name; INVALID_CONFIG if a listener cannot have one."""
    if not any(listener.security_protocol.endswith("SSL") for listener in config.listeners):
        return {}
    try:
        # A broker without such a listener does not import the library, and starts faster.
        from barnabas.security.tls.listeners import SWEEP_PERIOD_MS, TlsListeners  # noqa: PLC0415
    except ImportError as error:
        raise InvalidConfig(
            f"TLS needs {error.name}; install it with {install_command('security')}"
        ) from None
    listeners = TlsListeners(config.listeners, config.values, clock, metrics)

    def renew() -> None:
        listeners.renew(config.values)

    configs.check_broker_changes(listeners.check)
    configs.on_broker_change(lambda _: renew())
    scheduler.every(SWEEP_PERIOD_MS, renew)
    return listeners.by_name
