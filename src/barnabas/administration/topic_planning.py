"""Plan of a requested topic: its settings and its replica assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from barnabas.administration.topic_rules import (
    Assignment,
    TopicSpec,
    given_configs,
    plan_more_partitions,
    plan_topic,
)
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.metadata.replica_placement import assign_replicas
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.config.log_config import LogConfig
from barnabas.core.ids import Randomness, Uuid


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or that `validate_only` found valid."""

    name: str
    topic_id: Uuid
    num_partitions: int
    replication_factor: int
    config: LogConfig


class PlannedTopic(NamedTuple):
    name: str
    topic_id: Uuid
    assignment: Assignment
    overrides: Mapping[str, str]
    config: LogConfig

    @property
    def created(self) -> CreatedTopic:
        """Result for the client."""
        return CreatedTopic(
            self.name, self.topic_id, len(self.assignment), len(self.assignment[0]), self.config
        )


class TopicPlanner:
    def __init__(self, configs: ConfigRepository, metadata: MetadataCache, randomness: Randomness) -> None:
        self._configs = configs
        self._metadata = metadata
        self._randomness = randomness

    def new_topic(self, spec: TopicSpec) -> PlannedTopic:
        """Plan for `spec`; raises if the spec is invalid. The caller checks that the name is free."""
        overrides = given_configs(spec.configs)
        config = self._configs.resolve(overrides)
        assignment = plan_topic(
            spec,
            default_partitions=self._configs.broker_config.num_partitions,
            default_replication_factor=self._configs.broker_config.default_replication_factor,
            live_brokers=self._metadata.racks().keys(),
            assign=self._assign,
        )
        return PlannedTopic(spec.name, Uuid.generate(self._randomness), assignment, overrides, config)

    def more_partitions(
        self,
        topic: str,
        present: Sequence[Sequence[int]],
        count: int,
        by_hand: Sequence[Sequence[int]] | None,
    ) -> Assignment:
        """Assignment of the added partitions, so that the topic has `count`."""
        return plan_more_partitions(
            topic,
            present,
            count,
            by_hand,
            live_brokers=self._metadata.racks().keys(),
            assign=partial(self._continue, present),
        )

    def _assign(self, partitions: int, replication_factor: int, first_partition: int) -> Assignment:
        racks = self._metadata.racks()
        return assign_replicas(
            racks,
            partitions,
            replication_factor,
            start_index=self._randomness.randrange(0, len(racks)),
            shift=self._randomness.randrange(0, len(racks)),
            first_partition=first_partition,
        )

    def _continue(
        self,
        present: Sequence[Sequence[int]],
        partitions: int,
        replication_factor: int,
        first_partition: int,
    ) -> Assignment:
        """Start as in Kafka at the preferred leader of partition 0, or at the next broker that lives."""
        racks = self._metadata.racks()
        later = (index for index, broker in enumerate(sorted(racks)) if broker >= present[0][0])
        return assign_replicas(
            racks,
            partitions,
            replication_factor,
            start_index=next(later, 0),
            first_partition=first_partition,
        )
