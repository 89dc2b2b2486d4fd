"""Settings of a broker and of a topic, and its quotas, for a test that has none of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.client_entities import ClientEntities
from barnabas.config.log_config import LogConfig, resolve
from barnabas.core.reporting.metrics import Metrics
from barnabas.quota.client_quotas import ClientQuotas
from tests.support.manual_time import ManualClock


def broker_config(**settings: object) -> BrokerConfig:
    """Keys with underscores for dots; True is `true`, None leaves a key out."""
    return BrokerConfig.load(
        {
            name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in settings.items()
            if value is not None
        }
    )


def log_config(**values: Any) -> LogConfig:
    """Keys with underscores for dots; the others have their defaults."""
    return replace(resolve({}), **values)


def unlimited() -> ClientQuotas:
    """Quota settings of a broker without quotas."""
    nothing_is_read: Any = None
    return ClientQuotas(ClientEntities(nothing_is_read), broker_config(), ManualClock(), Metrics())
