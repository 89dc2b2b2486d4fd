"""Repository of the settings in force, and the only way to change them while a broker runs.

Overrides are in the coordination store under `/config`: of each topic, of each group, of each subscription to
client metrics, of each broker, and under `<default>` of all brokers. The repository reads them once at the
start. A change is checked as a whole, written to the store, and only then takes effect: the listeners are
called.

A stored override that this version does not know stays in the store and has no effect. Unreadable or invalid
settings are different if they decide about deletion: until an operator repairs them, the broker deletes
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.cross_checks import check_dynamic_agreement
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.keys import Definition
from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.config.derived import Derived
from barnabas.config.dynamic.changes import Change, apply_changes, check_broker_overrides
from barnabas.config.dynamic.client_entities import ClientEntities
from barnabas.config.dynamic.client_metrics_config import (
    CLIENT_METRICS_KEYS,
    check_client_metrics,
    check_subscription_name,
    describe_client_metrics,
)
from barnabas.config.dynamic.group_config import (
    GROUP_KEYS,
    check_group_name,
    check_group_overrides,
    describe_group,
    group_value,
)
from barnabas.config.dynamic.layers import (
    BrokerLayers,
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from barnabas.config.dynamic.loggers import change_levels, describe_loggers
from barnabas.config.dynamic.named_overrides import NamedOverrides, usable
from barnabas.config.dynamic.store import (
    BROKERS,
    CLIENT_METRICS,
    DEFAULT_ENTITY,
    GROUPS,
    TOPICS,
    ConfigStore,
    Overrides,
)
from barnabas.config.log_config import LogConfig, resolve
from barnabas.core.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from barnabas.core.ids import BrokerId, check_topic_name
from barnabas.core.waiting import Lock
from barnabas.protocol.config_numbers import ResourceType

logger = logging.getLogger(__name__)

TopicListener = Callable[[str, LogConfig], None]
BrokerListener = Callable[[Collection[str]], None]
BrokerCheck = Callable[[Mapping[str, Any]], None]
Decide = Callable[[Mapping[str, str]], dict[str, str]]
"""The overrides of a resource after a change of the present ones."""


KEEP_EVERYTHING: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""For a topic with unknown settings: the broker cannot know what it may delete, so it deletes nothing."""

BROKER_KEEPS_EVERYTHING: Final = {f"log.{name}": value for name, value in KEEP_EVERYTHING.items()}

DECIDE_ON_DELETION: Final = frozenset(
    {
        *KEEP_EVERYTHING,
        "delete.retention.ms",
        "min.compaction.lag.ms",
        *BROKER_KEEPS_EVERYTHING,
        "log.retention.minutes",
        "log.retention.hours",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.min.compaction.lag.ms",
    }
)


_KEYS: Final[Mapping[int, Definition]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}
"""Definitions of all resources but brokers, whose keys include those of their listeners."""


class ConfigResource(NamedTuple):
    type: int
    name: str
    """Name of a topic, a group or a subscription, or the id of a broker; empty for all brokers."""


class ConfigRepository:
    """`broker_config` holds the properties of the start, and from then on the values in force."""

    def __init__(self, store: ConfigStore, broker_id: BrokerId, broker_config: BrokerConfig) -> None:
        self._store = store
        self.clients = ClientEntities(store)
        self._broker_id = broker_id
        self.broker_config = broker_config
        self._layers = BrokerLayers(BROKER_KEYS, broker_config.given)
        self._overrides: dict[str, dict[str, str]] = {}
        self._topics: dict[str, LogConfig] = {}
        self.groups = NamedOverrides(
            GROUPS,
            "group",
            GROUP_KEYS,
            check_name=check_group_name,
            check=lambda _, overrides: check_group_overrides(overrides, self._layers),
            describe=lambda overrides: describe_group(overrides, self._layers),
        )
        self.client_metrics = NamedOverrides(
            CLIENT_METRICS,
            "client metrics",
            CLIENT_METRICS_KEYS,
            check_name=check_subscription_name,
            check=check_client_metrics,
            describe=describe_client_metrics,
        )
        self._named: Mapping[int, NamedOverrides] = {
            ResourceType.GROUP: self.groups,
            ResourceType.CLIENT_METRICS: self.client_metrics,
        }
        self._without_overrides = resolve({}, broker_config.values)
        self._topic_listeners: list[TopicListener] = []
        self._broker_listeners: list[BrokerListener] = []
        self._broker_checks: list[BrokerCheck] = []
        self.changing = Lock()
        """Held during each change of topics or settings: one change at a time."""
        self._reading = Lock()
        """Held during each read of the store, so that an older read never replaces a newer one."""

    async def load(self) -> None:
        """Read the dynamic settings of this broker, of all brokers, and of topics."""
        keys = self._layers.keys
        for entity, layer in (
            (DEFAULT_ENTITY, self._layers.dynamic_default),
            (str(self._broker_id), self._layers.dynamic),
        ):
            layer.update(_broker_overrides(keys, await self._store.read(BROKERS, entity), entity))
        self._put_broker_values(self._layers.values())
        for topic, overrides in (await self._store.read_all(TOPICS)).items():
            self.add_topic(topic, overrides)
        for entities in self._named.values():
            for name, stored in (await self._store.read_all(entities.store_type)).items():
                entities.put_stored(name, stored or {})
        await self.clients.load()

    def on_topic_change(self, listener: TopicListener) -> None:
        """Call `listener` after each change of a topic's settings."""
        self._topic_listeners.append(listener)

    def check_broker_changes(self, check: BrokerCheck) -> None:
        """Call `check` with the values of an intended change; it raises INVALID_CONFIG to reject them."""
        self._broker_checks.append(check)

    def on_broker_change(self, listener: BrokerListener) -> None:
        """Call `listener` with the names of the broker's keys whose values have changed."""
        self._broker_listeners.append(listener)

    # --- values in force ---

    def topic_config(self, topic: str) -> LogConfig:
        """Settings of a topic; for an unknown topic those of a new one."""
        return self._topics.get(topic, self._without_overrides)

    def group_value(self, group: str, name: str) -> int:
        """The value in force of a group's key."""
        return group_value(name, self.groups.get(group), self._layers)

    def is_default(self, name: str) -> bool:
        """Whether topics without an override have Kafka's default of this key: the broker sets no other."""
        row = TOPIC_KEYS[name]
        given = (row.synonym, *(coarser for coarser, _ in row.coarser))
        return all(each is None or self._layers.text(each) is None for each in given)

    def broker_overrides(self, name: str) -> Mapping[str, str]:
        """Dynamic settings of this broker, or without a name of all brokers."""
        return self._layers.dynamic if name else self._layers.dynamic_default

    def describe(self, resource: ConfigResource) -> list[ConfigEntry]:
        """All settings of a resource, each with the source of its value."""
        match resource.type:
            case ResourceType.TOPIC:
                check_topic_name(resource.name)
                self._check_topic(resource.name)
                return self.entries(self._topics[resource.name])
            case ResourceType.BROKER if not resource.name:
                return describe_broker_defaults(self._layers)
            case ResourceType.BROKER:
                self._check_broker(resource.name)
                return describe_broker(self._layers)
            case ResourceType.BROKER_LOGGER:
                self._check_broker(resource.name)
                return describe_loggers()
            case ResourceType.GROUP | ResourceType.CLIENT_METRICS:
                return self._named[resource.type].describe(resource.name)
        raise InvalidRequest(f"resource type {resource.type} has no configs here")

    def entries(self, config: LogConfig) -> list[ConfigEntry]:
        """Entries of a topic's settings, as DescribeConfigs shows them."""
        return describe_topic(config, self._layers)

    # --- topics that appear and disappear ---

    def resolve(self, overrides: Mapping[str, str]) -> LogConfig:
        """Settings of a topic with these overrides; INVALID_CONFIG if they are invalid."""
        return resolve(overrides, self.broker_config.values) if overrides else self._without_overrides

    def add_topic(self, topic: str, overrides: Mapping[str, str] | None) -> LogConfig:
        """Add a topic with its stored overrides; None if they are unreadable."""
        known = KEEP_EVERYTHING if overrides is None else overrides
        self._overrides[topic] = dict(known)
        config = self._topics[topic] = self._resolve_stored(topic, known)
        return config

    async def load_topics(self, names: Iterable[str]) -> None:
        """Add these topics, with the settings that the store has now."""
        wanted = sorted(names)
        if not wanted:
            return
        async with self._reading:
            for topic, stored in zip(wanted, await self._store.read_topics(wanted), strict=True):
                self._put_stored(topic, stored)

    async def find_topics(self, names: Iterable[str]) -> None:
        """Load the topics that this broker has no replica of, if they exist."""
        unknown = [name for name in names if name and name not in self._topics]
        if unknown:
            await self.load_topics(await self._store.existing_topics(unknown))

    async def reload(self, entity_type: str, entity_name: str) -> None:
        """Read the settings of an entity that another broker has changed."""
        async with self._reading:
            if entity_type == TOPICS and entity_name in self._topics:
                stored = await self._store.read(entity_type, entity_name)
                if entity_name in self._topics:  # it may be deleted by now
                    self._put_stored(entity_name, stored)
            elif entity_type == BROKERS and entity_name in (DEFAULT_ENTITY, str(self._broker_id)):
                stored = await self._store.read(entity_type, entity_name)
                if stored is not None:
                    self._put_layer(entity_name, _broker_overrides(self._layers.keys, stored, entity_name))
            for entities in self._named.values():
                if entity_type == entities.store_type:
                    stored = await self._store.read(entity_type, entity_name)
                    if stored is not None:
                        entities.put_stored(entity_name, stored)

    async def reload_all(self) -> None:
        """Read all settings again: notifications may have been lost."""
        async with self._reading:
            brokers = await self._store.read_all(BROKERS)
            named = [(each, await self._store.read_all(each.store_type)) for each in self._named.values()]
            topics = await self._store.read_all(TOPICS)
            for entity in (DEFAULT_ENTITY, str(self._broker_id)):
                stored = brokers.get(entity, {})
                if stored is not None:
                    self._put_layer(entity, _broker_overrides(self._layers.keys, stored, entity))
            for entities, found in named:
                for name in {*entities, *found}:
                    stored = found.get(name, {})
                    if stored is not None:
                        entities.put_stored(name, stored)
            for topic in sorted(self._topics):
                self._put_stored(topic, topics.get(topic, {}))
        await self.clients.reload_all()

    def _put_stored(self, topic: str, overrides: Overrides) -> None:
        """Take over readable overrides; unreadable ones change nothing."""
        if topic not in self._topics:
            self.add_topic(topic, overrides)
        elif overrides is not None and overrides != self._overrides[topic]:
            self._overrides[topic] = dict(overrides)
            self._set_topic_config(topic, self._resolve_stored(topic, overrides))

    def keep_topics(self, overrides: Mapping[str, Mapping[str, str] | None]) -> None:
        """Keep exactly these topics, even if the store has settings of others."""
        self._overrides.clear()
        self._topics.clear()
        for topic, stored in overrides.items():
            self.add_topic(topic, stored)

    def remove_topic(self, topic: str) -> None:
        self._overrides.pop(topic, None)
        self._topics.pop(topic, None)

    def _resolve_stored(self, topic: str, overrides: Mapping[str, str]) -> LogConfig:
        found = usable(TOPIC_KEYS, overrides, f"topic {topic}")
        if _is_deletion_unclear(overrides, found):
            found |= KEEP_EVERYTHING
        try:
            return self.resolve(found)
        except InvalidConfig as error:
            logger.warning(
                "topic %s: invalid overrides ignored, its defaults apply: %s", topic, error.message
            )
            return self.resolve(KEEP_EVERYTHING)

    # --- changes ---

    async def replace(
        self, resource: ConfigResource, overrides: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace all overrides of the resource."""
        await self._find(resource)
        async with self.changing:
            await self._apply(resource, lambda _: dict(overrides), validate_only=validate_only)

    async def change(
        self, resource: ConfigResource, changes: Sequence[Change], *, validate_only: bool = False
    ) -> None:
        """Change single keys of the resource."""
        if resource.type == ResourceType.BROKER_LOGGER:
            self._check_broker(resource.name)
            change_levels(changes, validate_only=validate_only)
            return
        await self._find(resource)
        async with self.changing:
            keys = _KEYS.get(resource.type, self._layers.keys)
            await self._apply(
                resource,
                lambda current: apply_changes(keys, current, changes),
                validate_only=validate_only,
            )

    async def _find(self, resource: ConfigResource) -> None:
        if resource.type == ResourceType.TOPIC:
            await self.find_topics((resource.name,))

    async def _apply(self, resource: ConfigResource, decide: Decide, *, validate_only: bool) -> None:
        if resource.type == ResourceType.TOPIC:
            await self._apply_to_topic(resource.name, decide, validate_only=validate_only)
        elif resource.type == ResourceType.BROKER:
            await self._apply_to_broker(resource.name, decide, validate_only=validate_only)
        elif (entities := self._named.get(resource.type)) is not None:
            await self._apply_to_named(entities, resource.name, decide, validate_only=validate_only)
        else:
            raise InvalidRequest(f"resource type {resource.type} has no configs here")

    async def _apply_to_topic(self, topic: str, decide: Decide, *, validate_only: bool) -> None:
        self._check_topic(topic)

        def decided(stored: Overrides) -> dict[str, str]:
            """The new overrides, which follow from the stored ones: another broker may have changed them."""
            overrides = decide(self._overrides.get(topic, {}) if stored is None else stored)
            self.resolve(overrides)
            return overrides

        overrides = await self._changed(TOPICS, topic, decided, validate_only=validate_only)
        if overrides is None:
            return
        if topic not in self._topics:
            raise UnknownTopicOrPartition(f"the topic '{topic}' was deleted meanwhile")
        self._overrides[topic] = overrides
        self._set_topic_config(topic, self.resolve(overrides))

    async def _apply_to_broker(self, name: str, decide: Decide, *, validate_only: bool) -> None:
        if name:
            self._check_broker(name)
        entity, keys = name or DEFAULT_ENTITY, self._layers.keys

        def decided(stored: Overrides) -> dict[str, str]:
            present = self.broker_overrides(name) if stored is None else stored
            overrides = decide(_broker_overrides(keys, present, entity))
            check_broker_overrides(keys, overrides, all_brokers=not name)
            self._check_agreement(overrides)
            return overrides

        overrides = await self._changed(BROKERS, entity, decided, validate_only=validate_only)
        if overrides is not None:
            self._put_layer(entity, overrides)

    async def _changed(
        self,
        entity_type: str,
        name: str,
        decided: Callable[[Overrides], dict[str, str]],
        *,
        validate_only: bool,
    ) -> dict[str, str] | None:
        """The overrides that were written; None if they are only validated."""
        if validate_only:
            decided(None)
            return None
        written: dict[str, str] = {}

        def change(stored: Overrides) -> dict[str, str]:
            nonlocal written
            written = decided(stored)
            return written

        await self._store.change(entity_type, name, change)
        return written

    def _put_layer(self, entity_name: str, overrides: Mapping[str, str]) -> None:
        is_default = entity_name == DEFAULT_ENTITY
        layer = self._layers.dynamic_default if is_default else self._layers.dynamic
        layer.clear()
        layer.update(overrides)
        self._broker_changed()

    async def _apply_to_named(
        self, entities: NamedOverrides, name: str, decide: Decide, *, validate_only: bool
    ) -> None:
        entities.check_name(name)

        def decided(stored: Overrides) -> dict[str, str]:
            present = entities.get(name) if stored is None else stored
            overrides = decide(entities.usable(name, present))
            entities.check(name, overrides)
            return overrides

        overrides = await self._changed(entities.store_type, name, decided, validate_only=validate_only)
        if overrides is not None:
            entities.put(name, overrides)

    def _check_agreement(self, overrides: Mapping[str, str]) -> None:
        """Reject values that a broker would not start with."""
        values = {**self.broker_config.values, **self._layers.keys.parse(overrides)}
        try:
            check_dynamic_agreement(Derived.of(self.broker_config.given, values))
            resolve({}, values)
            for check in self._broker_checks:
                check(values)
        except InvalidConfig as error:
            raise InvalidRequest(error.message) from None

    def _broker_changed(self) -> None:
        before, after = self.broker_config.values, self._layers.values()
        names = before.keys() | after.keys()
        changed = {name for name in names if before.get(name) != after.get(name)}
        if not changed:
            return
        self._put_broker_values(after)
        for listener in self._broker_listeners:
            listener(changed)
        for topic, overrides in self._overrides.items():
            self._set_topic_config(topic, self._resolve_stored(topic, overrides))

    def _put_broker_values(self, values: Mapping[str, Any]) -> None:
        self.broker_config.put(values)
        self._without_overrides = resolve({}, values)

    def _set_topic_config(self, topic: str, config: LogConfig) -> None:
        before = self._topics[topic]
        self._topics[topic] = config
        if config != before:
            for listener in self._topic_listeners:
                listener(topic, config)

    def _check_topic(self, topic: str) -> None:
        if not topic:
            raise InvalidRequest("default topic resources are not allowed")
        check_topic_name(topic)
        if topic not in self._topics:
            raise UnknownTopicOrPartition(f"the topic '{topic}' does not exist")

    def _check_broker(self, name: str) -> None:
        if name != str(self._broker_id):
            raise InvalidRequest(
                f"unexpected broker id, expected {self._broker_id} or nothing, received {name!r}"
            )


def _is_deletion_unclear(stored: Mapping[str, str], understood: Mapping[str, str]) -> bool:
    return not DECIDE_ON_DELETION.isdisjoint(stored.keys() - understood.keys())


def _broker_overrides(keys: Definition, stored: Mapping[str, str] | None, entity: str) -> dict[str, str]:
    if stored is None:
        return dict(BROKER_KEEPS_EVERYTHING)
    found = usable(keys, stored, f"broker {entity}")
    return found | BROKER_KEEPS_EVERYTHING if _is_deletion_unclear(stored, found) else found
