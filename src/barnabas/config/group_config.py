"""What can be set for a group of the consumer protocol.

A group's key lies above the broker's key of the same meaning, and the broker's bounds hold for it: when a
value is set, and again when it is used, because the bounds may have changed since. Any name may have
settings, whether such a group exists or not.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config.keys import Definition
from barnabas.config.layers import BrokerLayers, ConfigEntry, Synonym, config_entry
from barnabas.config.rows import BROKER_KEYS
from barnabas.core.errors import InvalidConfig, InvalidRequest
from barnabas.protocol.config_numbers import ConfigSource

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"

GROUP_KEYS = Definition(
    (
        BROKER_KEYS["group.consumer.session.timeout.ms"].supplying(
            SESSION_TIMEOUT, "A member that was silent for this long is removed from the group."
        ),
        BROKER_KEYS["group.consumer.heartbeat.interval.ms"].supplying(
            HEARTBEAT_INTERVAL, "How often members of the group are told to send a heartbeat."
        ),
    )
)
BOUNDS: Mapping[str, tuple[str, str]] = {
    SESSION_TIMEOUT: ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    HEARTBEAT_INTERVAL: (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
}
assert BOUNDS.keys() == set(GROUP_KEYS)


def check_group_name(group: str) -> None:
    if not group:
        raise InvalidRequest("the name of a group must not be empty")


def check_group_overrides(overrides: Mapping[str, str], broker: BrokerLayers) -> None:
    for name, value in GROUP_KEYS.parse(overrides).items():
        least, most = (broker.value(bound) for bound in BOUNDS[name])
        if not least <= value <= most:
            raise InvalidConfig(f"{name} must be from {least} to {most}, not {value}")


def group_value(name: str, overrides: Mapping[str, str], broker: BrokerLayers) -> int:
    """The value in force for a group: its own within the broker's bounds, or the broker's."""
    key = GROUP_KEYS[name]
    if name not in overrides:
        assert key.synonym is not None
        return int(broker.value(key.synonym))
    least, most = (broker.value(bound) for bound in BOUNDS[name])
    return int(min(max(key.parse(overrides[name]), least), most))


def describe_group(overrides: Mapping[str, str], broker: BrokerLayers) -> list[ConfigEntry]:
    """Every key of a group, and where its value comes from."""
    entries = []
    for name, key in GROUP_KEYS.items():
        assert key.synonym is not None
        synonyms = broker.synonyms(key.synonym)
        if name in overrides:
            synonyms = [Synonym(name, overrides[name], ConfigSource.GROUP), *synonyms]
        entries.append(config_entry(key, synonyms[0].value, synonyms, read_only=False))
    return entries
