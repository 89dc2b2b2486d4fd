"""Topics come, grow and go: one change at a time.

The coordination store is the truth. A change is decided by the rules, written to the store in
one step, then made true on the replicas, then shown to clients in the metadata cache: a client
never sees a partition that nobody leads, and a crash anywhere leaves a store from which the
next start (`topic_loader`) makes the rest true. A deletion begins with a marker in the store;
a start that finds one finishes the deletion.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from barnabas.cluster import topics as store
from barnabas.cluster.coordination import Coordination
from barnabas.cluster.metadata_cache import MetadataCache, PartitionMetadata
from barnabas.cluster.store_errors import as_client_errors
from barnabas.cluster.znodes import PartitionState
from barnabas.config.repository import ConfigRepository
from barnabas.controller.administration import CreatedTopic
from barnabas.controller.election import Controllership
from barnabas.controller.local_partitions import LocalPartitions
from barnabas.controller.topic_loader import LogsOnDisk, TopicLoader
from barnabas.controller.topic_planning import PlannedTopic, TopicPlanner
from barnabas.controller.topic_rules import (
    Assignment,
    TopicSpec,
    check_new_name,
)
from barnabas.core.errors import (
    KafkaError,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import INTERNAL_TOPICS, Randomness, TopicPartition, Uuid

logger = logging.getLogger(__name__)


class TopicAdmin:
    """Creates, extends and deletes topics. Nothing waits for another broker, so no timeout applies."""

    def __init__(
        self,
        znodes: Coordination,
        controllership: Controllership,
        configs: ConfigRepository,
        metadata: MetadataCache,
        local: LocalPartitions,
        randomness: Randomness,
    ) -> None:
        self._znodes = znodes
        self._controllership = controllership
        self._configs = configs
        self._metadata = metadata
        self._local = local
        self._randomness = randomness
        self._planner = TopicPlanner(configs, metadata, randomness)

    async def load(self, disk: LogsOnDisk) -> None:
        """Lead everything that the store and the disk know of; once, before anything is served."""
        loader = TopicLoader(
            self._znodes,
            self._controllership,
            self._configs,
            self._metadata,
            self._local,
            self._randomness,
            disk,
        )
        async with self._configs.changing:
            await loader.load()

    async def create_topic(
        self,
        spec: TopicSpec,
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,  # noqa: ARG002 - see the class
    ) -> CreatedTopic:
        """Make a topic; with `validate_only` say whether it could be made."""
        async with self._configs.changing:
            check_new_name(spec.name, self._metadata.topic_names())
            planned = self._planner.new_topic(spec)
            if not validate_only:
                await self._make_topic(planned)
            return planned.created

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

    async def create_partitions(
        self,
        topic: str,
        count: int,
        by_hand: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,  # noqa: ARG002 - see the class
    ) -> None:
        """Give a topic more partitions, so that it has `count` of them."""
        async with self._configs.changing:
            known = self._metadata.topic(topic)
            if known is None:
                raise UnknownTopicOrPartition(f"the topic '{topic}' does not exist")
            added = self._planner.more_partitions(
                topic,
                [partition.replicas for partition in known.partitions],
                count,
                by_hand,
            )
            if validate_only:
                return
            states = self._first_states(added)
            with as_client_errors():
                await store.add_partitions(
                    self._znodes, topic, added, states, guard=self._controllership.guard
                )
            config = self._configs.topic_config(topic)
            partitions = await self._local.lead(topic, known.topic_id, added, states, config)
            self._metadata.put_partitions(topic, {partition.partition: partition for partition in partitions})

    async def delete_topic(
        self,
        topic: str,
        *,
        timeout_ms: float | None = None,  # noqa: ARG002 - see the class
    ) -> Uuid:
        """Delete a topic and everything in it; returns the id that it had."""
        async with self._configs.changing:
            known = self._metadata.topic(topic)
            if known is None:
                raise UnknownTopicOrPartition(f"the topic '{topic}' does not exist")
            with as_client_errors():
                await self._mark_for_deletion(topic)
                await self._local.delete(topic, range(len(known.partitions)))
                self._metadata.remove_topic(topic)
                self._configs.remove_topic(topic)
                await store.delete_topic(self._znodes, topic, guard=self._controllership.guard)
            return known.topic_id

    def replicas_offline(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """The disk of these partitions has failed: clients are told that nobody leads them.

        The store still names this broker: the next start decides by what it finds on disk.
        """
        by_topic: defaultdict[str, dict[int, PartitionMetadata]] = defaultdict(dict)
        for topic, number in topic_partitions:
            known = self._metadata.partition(topic, number)
            if known is not None:
                by_topic[topic][number] = PartitionMetadata(
                    number,
                    known.replicas,
                    leader_epoch=known.leader_epoch,
                    isr=known.isr,
                    offline=(*known.offline, self._local.broker_id),
                    controller_epoch=known.controller_epoch,
                )
        for topic, changed in by_topic.items():
            self._metadata.put_partitions(topic, changed)

    async def _mark_for_deletion(self, topic: str) -> None:
        try:
            await store.mark_for_deletion(self._znodes, topic)
        except TopicAlreadyExists:
            logger.info("an earlier deletion of topic %s is taken up again", topic)

    async def _make_topic(self, planned: PlannedTopic) -> None:
        topic, topic_id, assignment, overrides, _ = planned
        states = self._first_states(assignment)
        with as_client_errors():
            await store.create_topic(
                self._znodes,
                topic,
                topic_id,
                assignment,
                overrides,
                states,
                guard=self._controllership.guard,
            )
        config = self._configs.add_topic(topic, overrides)
        partitions = await self._local.lead(topic, topic_id, assignment, states, config)
        self._metadata.put_topic(topic, topic_id, partitions)

    def _first_states(self, assignment: Assignment) -> dict[int, PartitionState]:
        """The preferred replica leads, and all are in sync: there is nothing to catch up with."""
        epoch = self._controllership.epoch
        return {
            partition: PartitionState(replicas[0], 0, tuple(replicas), epoch)
            for partition, replicas in assignment.items()
        }
