"""Precedence of config values: the layers that a setting is looked up in.

A broker's key is looked up in four layers, the nearest first: this broker's dynamic settings, the dynamic
settings of all brokers, the properties of the start, and Kafka's default. A topic's key has one layer more,
the topic's own overrides; below it lies the broker's key of the same meaning.

For historical reasons one setting may have several broker keys in different units (`log.retention.ms`,
`.minutes`, `.hours`): the first that has a value wins.

DescribeConfigs shows this search: the source of a value is the layer where the search found it. Its synonyms
are all values that the search could find, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from barnabas.config.definitions.keys import ConfigType, Definition, Key, Update
from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.config.log_config import LogConfig
from barnabas.protocol.config_numbers import ConfigSource

_ROLL = ("log.roll.ms", "log.roll.hours")
_JITTER = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")

ALIASES: Mapping[str, Sequence[str]] = {
    "log.roll.ms": _ROLL,
    "log.roll.hours": _ROLL,
    "log.roll.jitter.ms": _JITTER,
    "log.roll.jitter.hours": _JITTER,
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": _RETENTION,
    "log.retention.minutes": _RETENTION,
    "log.retention.hours": _RETENTION,
}
"""Broker keys that mean the same, in order of precedence."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """One layer in which the search for a value finds something."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key as DescribeConfigs shows it. A sensitive value is never shown."""

    name: str
    value: str | None
    source: ConfigSource
    type: int
    read_only: bool
    is_sensitive: bool
    synonyms: Sequence[Synonym]
    documentation: str


class BrokerLayers:
    """The four layers of this broker's keys."""

    def __init__(self, keys: Definition, static: Mapping[str, str]) -> None:
        self.keys = keys
        self.static = dict(static)
        self.dynamic_default: dict[str, str] = {}
        self.dynamic: dict[str, str] = {}

    def text(self, name: str) -> str | None:
        """The text for `name` in the nearest layer, or None if only the default is left."""
        for layer in (self.dynamic, self.dynamic_default, self.static):
            if name in layer:
                return layer[name]
        return None

    def value(self, name: str) -> Any:
        """The value in force under this very name."""
        key = self.keys.key(name)
        text = self.text(name)
        return key.default if text is None else key.parse(text)

    def values(self) -> dict[str, Any]:
        """Every value in force."""
        return {name: self.value(name) for name in (*self.keys, *self.of_listeners())}

    def of_listeners(self) -> list[str]:
        """Names of keys for one listener; they exist where they are set."""
        given = self.dynamic.keys() | self.dynamic_default.keys() | self.static.keys()
        return sorted(given - self.keys.keys())

    def synonyms(self, name: str) -> list[Synonym]:
        """All values that the search finds, nearest first, beginning at the key's own name."""
        names = ALIASES.get(name, (name,))
        row = self.keys.get(name)
        if row is None and name in self.of_listeners():
            row = self.keys.key(name)
        sensitive = is_sensitive(row)
        found: list[Synonym] = []
        for layer, source in (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self.static, ConfigSource.STATIC_BROKER),
            (self._defaults(names), ConfigSource.DEFAULT),
        ):
            found += [
                Synonym(each, None if sensitive else layer[each], source) for each in names if each in layer
            ]
        while found and found[0].name != name:
            del found[0]
        return found

    def _defaults(self, names: Sequence[str]) -> dict[str, str]:
        rendered = {
            name: self.keys[name].render(self.keys[name].default) for name in names if name in self.keys
        }
        return {name: text for name, text in rendered.items() if text is not None}


def is_sensitive(key: Key | None) -> bool:
    """Whether the value must not be shown. The value of an unknown key might be a secret."""
    return key is None or key.type is ConfigType.PASSWORD


def describe_topic(config: LogConfig, broker: BrokerLayers) -> list[ConfigEntry]:
    """The keys of a topic with these settings, each with the source of its value."""
    entries = []
    for name, key in TOPIC_KEYS.items():
        if not key.is_shown_unset and name not in config.overridden:
            continue
        value = None if is_sensitive(key) else key.render(getattr(config, name.replace(".", "_")))
        synonyms = broker.synonyms(key.synonym) if key.synonym is not None else []
        if name in config.overridden:
            synonyms = [Synonym(name, value, ConfigSource.TOPIC), *synonyms]
        entries.append(config_entry(key, value, synonyms, read_only=False))
    return entries


def describe_broker(broker: BrokerLayers) -> list[ConfigEntry]:
    """Every key of this broker."""
    entries = []
    for name in (*broker.keys, *broker.of_listeners()):
        key = replace(broker.keys.key(name), name=name)
        if not key.is_shown_unset and broker.text(name) is None:
            continue
        value = None if is_sensitive(key) else key.render(broker.value(name))
        entries.append(config_entry(key, value, broker.synonyms(name), read_only=is_read_only(key)))
    return entries


def describe_broker_defaults(broker: BrokerLayers) -> list[ConfigEntry]:
    """The dynamic settings of all brokers."""
    entries = []
    for name, text in broker.dynamic_default.items():
        key = broker.keys[name]
        value = None if is_sensitive(key) else text
        shared = ConfigSource.DYNAMIC_DEFAULT_BROKER
        synonyms = [synonym for synonym in broker.synonyms(name) if synonym.source is shared]
        entries.append(config_entry(key, value, synonyms, read_only=is_read_only(key)))
    return entries


def is_read_only(key: Key) -> bool:
    return key.update is Update.READ_ONLY


def config_entry(key: Key, value: str | None, synonyms: Sequence[Synonym], *, read_only: bool) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=key.type,
        read_only=read_only,
        is_sensitive=is_sensitive(key),
        synonyms=synonyms,
        documentation=key.doc,
    )
