"""Internal topics that the broker creates on first use.

Internal topics are compacted, and clients cannot write to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.administration.topic_rules import TopicSpec
from barnabas.administration.topics import TopicAdministration
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.core.errors import TopicAlreadyExists


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """Definition of an internal topic.

    The replication factor depends on the live brokers, and some settings on the replication factor.
    """

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
        """Present partition count, or the count that the topic will be created with."""
        known = self._metadata.topic(name)
        return self._definitions[name].num_partitions if known is None else len(known.partitions)

    def configs_of(self, name: str) -> dict[str, str] | None:
        """Settings for creating the topic with one replica; None if it is not an internal topic."""
        definition = self._definitions.get(name)
        return None if definition is None else definition.configs(1)

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
