"""Settings of a consumer-protocol group.

A group's key overrides the broker's key of the same meaning, within the broker's bounds. They are checked
when a value is set, and again when it is used, because the bounds may have changed. Any name may have
settings, even if no such group exists.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.keys import Definition
from barnabas.config.dynamic.layers import BrokerLayers, ConfigEntry, Synonym, config_entry
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
            HEARTBEAT_INTERVAL, "The interval of heartbeats that the broker gives to members of the group."
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
    """All keys of a group, each with the source of its value."""
    entries = []
    for name, key in GROUP_KEYS.items():
        assert key.synonym is not None
        synonyms = broker.synonyms(key.synonym)
        if name in overrides:
            synonyms = [Synonym(name, overrides[name], ConfigSource.GROUP), *synonyms]
        entries.append(config_entry(key, synonyms[0].value, synonyms, read_only=False))
    return entries
