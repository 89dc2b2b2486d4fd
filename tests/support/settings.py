"""A broker's settings for a test that has no broker."""

from __future__ import annotations

from barnabas.config.broker_config import BrokerConfig


def broker_config(**settings: object) -> BrokerConfig:
    """Keys with underscores for dots; True is `true`, None leaves a key out."""
    return BrokerConfig.load(
        {
            name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in settings.items()
            if value is not None
        }
    )
