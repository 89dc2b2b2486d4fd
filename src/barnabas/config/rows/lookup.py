"""From the name of a key, as somebody wrote it, to its row."""

from __future__ import annotations

from barnabas.config.keys import ConfigType, Key
from barnabas.config.rows import BROKER_KEYS
from barnabas.config.rows.refused import refusal
from barnabas.core.errors import InvalidConfig


def broker_key(name: str) -> Key:
    """The row of `name`, or INVALID_CONFIG with why it is refused or what was probably meant."""
    row = BROKER_KEYS.get(name)
    if row is not None:
        return row
    reason = refusal(name)
    if reason is not None:
        raise InvalidConfig(f"configuration key {name!r} is not supported: {reason}")
    return BROKER_KEYS.key(name)


def is_secret(name: str) -> bool:
    """Whether the value of `name` must not be shown; what is unknown is not shown either."""
    try:
        return broker_key(name).type is ConfigType.PASSWORD
    except InvalidConfig:
        return True
