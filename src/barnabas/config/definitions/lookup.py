"""Lookup of a broker key by its name."""

from __future__ import annotations

from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.keys import ConfigType, Key
from barnabas.config.definitions.refused import refusal
from barnabas.core.errors import InvalidConfig


def broker_key(name: str) -> Key:
    """The row of `name`; INVALID_CONFIG has the reason, or suggests a similar key."""
    row = BROKER_KEYS.get(name)
    if row is not None:
        return row
    reason = refusal(name)
    if reason is not None:
        raise InvalidConfig(f"configuration key {name!r} is not supported: {reason}")
    return BROKER_KEYS.key(name)


def is_secret(name: str) -> bool:
    """Whether the value of `name` must not be shown. The value of an unknown key might be a secret."""
    try:
        return broker_key(name).type is ConfigType.PASSWORD
    except InvalidConfig:
        return True
