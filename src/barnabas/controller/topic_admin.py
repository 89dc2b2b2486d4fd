"""Topics come, grow and go: one change at a time.

The coordination store is the truth. A change is decided by the rules, written to the store in
one step, then made true on the replicas, then shown to clients in the metadata cache: a client
never sees a partition that nobody leads, and a crash anywhere leaves a store from which the
next start makes the rest true. A deletion begins with a marker in the store; a start that
finds one finishes the deletion.

Making thousands of partitions takes a while, so the loop gets a turn between slices of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.cluster.assignment import assign_replicas
from barnabas.cluster.coordination import Coordination, NodeExists
from barnabas.cluster.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from barnabas.cluster.topics import TopicStore
from barnabas.controller.configs import ConfigRepository
from barnabas.controller.store_errors import as_client_errors
from barnabas.controller.topic_rules import (
    Assignment,
    TopicSpec,
    check_new_name,
    given_configs,
    plan_more_partitions,
    plan_topic,
)
from barnabas.core.errors import (
    KafkaError,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import (
    INTERNAL_TOPICS,
    NO_LEADER,
    ZERO_UUID,
    BrokerId,
    Randomness,
    TopicPartition,
    Uuid,
)
from barnabas.storage.log_config import LogConfig

logger = logging.getLogger(__name__)

PARTITIONS_PER_SLICE = 64
"""Partitions that are made or stopped before the loop may serve others."""


class Replicas(Protocol):
    """What the controller asks of the replicas of this broker."""

    def become_leader(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        leader_epoch: int,
        replicas: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        config: LogConfig,
    ) -> None: ...
    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None: ...
    def forget_topic(self, topic: str) -> None: ...


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was made, or would have been (then its id is zero)."""

    name: str
    topic_id: Uuid
    num_partitions: int
    replication_factor: int
    config: LogConfig

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition) for partition in range(self.num_partitions)]


class TopicAdmin:
    """Creates, extends and deletes topics."""

    def __init__(
        self,
        znodes: Coordination,
        broker_id: BrokerId,
        controller_epoch: int,
        configs: ConfigRepository,
        metadata: MetadataCache,
        replicas: Replicas,
        randomness: Randomness,
    ) -> None:
        self._znodes = znodes
        self._broker_id = broker_id
        self._controller_epoch = controller_epoch
        self._configs = configs
        self._metadata = metadata
        self._replicas = replicas
        self._randomness = randomness

    # Requests

    async def create_topic(self, spec: TopicSpec, *, validate_only: bool = False) -> CreatedTopic:
        """Make a topic; with `validate_only` say whether it could be made."""
        async with self._configs.changing:
            check_new_name(spec.name, self._metadata.topics.keys())
            overrides = given_configs(spec.configs)
            config = self._configs.resolve(overrides)
            assignment = plan_topic(
                spec,
                default_partitions=self._configs.broker_value("num.partitions"),
                default_replication_factor=self._configs.broker_value("default.replication.factor"),
                live_brokers=self._metadata.brokers.keys(),
                assign=self._assign,
            )
            topic_id = ZERO_UUID if validate_only else Uuid.generate(self._randomness)
            if not validate_only:
                await self._make_topic(spec.name, topic_id, assignment, overrides)
            return CreatedTopic(spec.name, topic_id, len(assignment), len(assignment[0]), config)

    async def auto_create(self, names: Sequence[str]) -> dict[str, KafkaError]:
        """Make the topics that do not exist, with the broker's defaults; returns what went wrong.

        Internal topics are made by the broker when it needs them, never because a client asks.
        """
        failures: dict[str, KafkaError] = {}
        for name in dict.fromkeys(names):
            try:
                if name in INTERNAL_TOPICS:
                    raise UnknownTopicOrPartition(f"the internal topic {name} does not exist yet")
                await self.create_topic(TopicSpec(name))
            except TopicAlreadyExists:
                continue
            except KafkaError as error:
                failures[name] = error
            except Exception:
                logger.exception("topic %s could not be created", name)
                failures[name] = UnknownServerError("the topic could not be created")
        return failures
