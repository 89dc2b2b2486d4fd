"""The topics that the broker makes for itself, when they are first needed.

They are compacted, and clients cannot write to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.controller.administration import TopicAdministration
from barnabas.controller.topic_rules import TopicSpec
from barnabas.core.errors import TopicAlreadyExists


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """What an internal topic is created with; the replication factor depends on the live brokers, and some
    settings on the replication factor."""

    num_partitions: int
    replication_factor: Callable[[int], int]
    configs: Callable[[int], dict[str, str]]


class InternalTopics:
    def __init__(
        self, topics: TopicAdministration, metadata: MetadataCache, definitions: dict[str, InternalTopic]
    ) -> None:
        self._topics = topics
        self._metadata = metadata
        self._definitions = definitions

    def partition_count(self, name: str) -> int:
        """As it is, or as it will be."""
        known = self._metadata.topic(name)
        return self._definitions[name].num_partitions if known is None else len(known.partitions)

    async def ensure(self, name: str) -> None:
        """Create the topic unless it exists."""
        definition = self._definitions[name]
        replication_factor = definition.replication_factor(len(self._metadata.brokers()))
        spec = TopicSpec(
            name,
            num_partitions=definition.num_partitions,
            replication_factor=replication_factor,
            configs=definition.configs(replication_factor),
        )
        try:
            await self._topics.create_topic(spec)
        except TopicAlreadyExists:
            return
