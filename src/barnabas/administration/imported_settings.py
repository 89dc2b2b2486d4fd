"""Settings of imported topics: those of Apache Kafka's metadata log, or settings that delete nothing.

Retention and compaction destroy records, so the import never guesses settings.

- The KRaft metadata log in the directory knows the topic id: the topic gets its settings back. The broker
  gets those of Kafka's dynamic settings that topics inherit.
- The metadata log is missing, damaged, or knows another topic of that name: nothing is deleted
  (`KEEP_EVERYTHING`) until an operator decides. The coordinators' topics are the exception: their records
  only mean something under compaction.
- The topic may have inherited its retention from Kafka's `server.properties`, which is in no log. If this
  broker sets none either and the default would delete records at once, nothing is deleted by age.

The settings of the metadata log apply once. Afterwards the store owns them, and a lost store must not get
outdated settings back. A file in the log directory records the offset up to which the log was imported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.config.dynamic.changes import Change
from barnabas.config.dynamic.repository import KEEP_EVERYTHING, ConfigRepository, ConfigResource
from barnabas.core.errors import KafkaError
from barnabas.core.ids import BrokerId, Uuid
from barnabas.protocol.config_numbers import ConfigOperation, ResourceType
from barnabas.storage.directory.kraft_metadata import ALL_BROKERS, KraftMetadata, UnreadableMetadata

logger = logging.getLogger(__name__)

NAMED_MAX: Final = 20
"""Largest number of topics that one log line names."""

InternalConfigs = Callable[[str], Mapping[str, str] | None]
"""Settings for creating a coordinator's topic; None for every other topic."""

_INHERITED: Final = frozenset(
    name
    for row in TOPIC_KEYS.values()
    if row.synonym is not None
    for name in (row.synonym, *(coarser for coarser, _ in row.coarser))
)
"""Broker settings that topics inherit."""


class SettingsOnDisk(Protocol):
    def kraft_metadata(self) -> KraftMetadata | None: ...
    def note_kraft_metadata_adopted(self, metadata: KraftMetadata) -> None: ...
    def would_delete(self, topic: str, retention_ms: int) -> bool: ...


class ImportedSettings:
    """Settings of one import: `load`, then `of` each topic, then `finish`."""

    def __init__(
        self,
        configs: ConfigRepository,
        broker_id: BrokerId,
        disk: SettingsOnDisk,
        internal_configs: InternalConfigs,
    ) -> None:
        self._configs = configs
        self._broker_id = broker_id
        self._disk = disk
        self._internal_configs = internal_configs
        self._metadata: KraftMetadata | None = None
        self._without_settings: list[str] = []
        self._kept_from_default: list[str] = []

    @property
    def last_producer_id(self) -> int:
        """Largest producer id that Kafka may have allocated; -1 if unknown."""
        return -1 if self._metadata is None else self._metadata.next_producer_id - 1

    async def load(self) -> None:
        """Read the metadata log and import its broker settings."""
        try:
            self._metadata = self._disk.kraft_metadata()
        except UnreadableMetadata as error:
            logger.error("no settings are imported from Apache Kafka: %s", error)
        if self._metadata is not None:
            for name in (ALL_BROKERS, str(self._broker_id)):
                await self._take_broker_settings(name, self._metadata.broker_configs.get(name, {}))

    async def _take_broker_settings(self, name: str, overrides: Mapping[str, str]) -> None:
        whose = f"broker {name}" if name else "all brokers"
        stored = self._configs.broker_overrides(name)
        inherited = {key: overrides[key] for key in sorted(_INHERITED & overrides.keys() - stored.keys())}
        left = sorted(overrides.keys() - _INHERITED)
        if left:
            logger.warning(
                "Apache Kafka's dynamic settings of %s are not imported: %s", whose, ", ".join(left)
            )
        for key, value in inherited.items():
            try:
                await self._configs.change(
                    ConfigResource(ResourceType.BROKER, name), [Change(key, ConfigOperation.SET, value)]
                )
            except KafkaError as error:
                logger.error("%s=%s of %s is not imported: %s", key, value, whose, error.message)
            else:
                logger.info("%s=%s of %s is imported from Apache Kafka", key, value, whose)

    def of(self, topic: str, topic_id: Uuid | None) -> dict[str, str]:
        """Overrides for the imported topic."""
        found = None if self._metadata is None else self._metadata.config_of(topic, topic_id)
        if found is None:
            internal = self._internal_configs(topic)
            if internal is not None:
                return dict(internal)
            self._without_settings.append(topic)
            return dict(KEEP_EVERYTHING)
        overrides = {name: value for name, value in found.items() if name in TOPIC_KEYS}
        unknown = sorted(found.keys() - overrides.keys())
        if unknown:
            logger.warning(
                "topic %s: settings without effect here are dropped: %s", topic, ", ".join(unknown)
            )
        return self._spared(topic, overrides)

    def _spared(self, topic: str, overrides: dict[str, str]) -> dict[str, str]:
        """Overrides with retention off if only this broker's default would delete records at once."""
        config = self._configs.add_topic(topic, overrides)
        if (
            not config.is_deleted
            or "retention.ms" in config.overridden
            or not self._configs.is_default("retention.ms")
            or not self._disk.would_delete(topic, config.retention_ms)
        ):
            return overrides
        self._kept_from_default.append(topic)
        return overrides | {"retention.ms": KEEP_EVERYTHING["retention.ms"]}

    def finish(self) -> None:
        """Log the decisions, and record that the metadata log was imported."""
        if self._without_settings:
            logger.warning(
                "nothing is deleted from %s: the directory does not say which settings these topics had. Set"
                " them with `barnabas config set topic NAME KEY=VALUE`, or return to the broker's with"
                " --delete cleanup.policy --delete retention.ms --delete retention.bytes",
                _listed(self._without_settings),
            )
        if self._kept_from_default:
            logger.warning(
                "nothing is deleted by age from %s: these topics have records older than the default of"
                " log.retention.hours, and Apache Kafka kept them. Set retention.ms with `barnabas config set"
                " topic NAME retention.ms=…`, or return to the broker's with --delete retention.ms",
                _listed(self._kept_from_default),
            )
        if self._metadata is not None:
            self._disk.note_kraft_metadata_adopted(self._metadata)


def _listed(topics: list[str]) -> str:
    shown = ", ".join(topics[:NAMED_MAX])
    return shown if len(topics) <= NAMED_MAX else f"{shown} and {len(topics) - NAMED_MAX} more topics"
