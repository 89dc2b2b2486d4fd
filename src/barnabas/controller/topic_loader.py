"""What a start finds, and how it becomes topics that are led.

The store says which topics there are; the disk may know better in two cases. A deletion that a
crash interrupted left its marker in the store: it is finished. A partition directory that the
store does not know was written by another Kafka (or the store was lost): it is adopted as it
is, with the topic id that its `partition.metadata` names.

Every start elects this broker again, in a new leader epoch. A crash may have lost records that
were acknowledged but never synced; the epoch is how clients that saw them find out. It is
also never lower than an epoch that a log has already seen.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.cluster import topics as store
from barnabas.cluster.coordination import Coordination, Create, NoNode, Operation, SetData
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.cluster.notification_znodes import DeleteTopicsZnode
from barnabas.cluster.topics import StoredTopic
from barnabas.cluster.znodes import (
    PartitionState,
    PartitionStateZnode,
    ReplicaAssignment,
    TopicZnode,
)
from barnabas.config.repository import ConfigRepository
from barnabas.controller.election import Controllership
from barnabas.controller.local_partitions import LocalPartitions
from barnabas.controller.topic_rules import METADATA_TOPIC
from barnabas.core.errors import InvalidTopicException, TopicAlreadyExists
from barnabas.core.ids import (
    NO_EPOCH,
    NO_LEADER,
    BrokerId,
    Randomness,
    TopicPartition,
    Uuid,
    check_topic_name,
)
from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)

OPERATIONS_PER_TRANSACTION = 2_000
"""Elections do not depend on each other; ZooKeeper bounds the size of a transaction."""


class Election(NamedTuple):
    """Who leads the partitions of a topic, and the writes that make it so."""

    topic: str
    topic_id: Uuid
    assignment: Mapping[int, Sequence[int]]
    states: Mapping[int, PartitionState]
    operations: Sequence[Operation]


class LogsOnDisk(Protocol):
    """What a start asks of the log manager."""

    @property
    def offline_directories(self) -> Sequence[object]: ...
    @property
    def damaged(self) -> Mapping[TopicPartition, object]: ...
    def logs(self) -> Iterable[Log]: ...
    def largest_producer_id(self) -> int: ...
    def delete(self, topic_partition: TopicPartition) -> None: ...
    def set_aside_stray(self, topic_partition: TopicPartition) -> None: ...


class TopicLoader:
    """Used once, before anything is served."""

    def __init__(
        self,
        znodes: Coordination,
        controllership: Controllership,
        configs: ConfigRepository,
        metadata: MetadataCache,
        local: LocalPartitions,
        randomness: Randomness,
        disk: LogsOnDisk,
    ) -> None:
        self._znodes = znodes
        self._controllership = controllership
        self._configs = configs
        self._metadata = metadata
        self._local = local
        self._broker_id = local.broker_id
        self._randomness = randomness
        self._disk = disk
        self._logs: dict[TopicPartition, Log] = {}

    async def load(self) -> None:
        """Lead everything that the store and the disk know of."""
        self._logs = {log.topic_partition: log for log in self._disk.logs()}
        await self._finish_deletions()
        topics = await store.read_topics(self._znodes)
        if await self._adopt(topics):
            topics = await store.read_topics(self._znodes)
            await self._retire_producer_ids()
        self._configs.keep_topics({name: topic.config for name, topic in topics.items()})
        elected = [await self._elect(topic) for topic in topics.values()]
        await self._write([operation for election in elected for operation in election.operations])
        for election in elected:
            self._set_strays_aside(election)
            partitions = await self._local.lead(
                election.topic,
                election.topic_id,
                election.assignment,
                election.states,
                self._configs.topic_config(election.topic),
            )
            self._metadata.put_topic(election.topic, election.topic_id, partitions)

    async def _write(self, operations: Sequence[Operation]) -> None:
        for start in range(0, len(operations), OPERATIONS_PER_TRANSACTION):
            some = operations[start : start + OPERATIONS_PER_TRANSACTION]
            await self._znodes.multi([*self._controllership.guard, *some])

    # Deletions that a crash interrupted

    async def _finish_deletions(self) -> None:
        try:
            marked = await self._znodes.children(DeleteTopicsZnode.PARENT)
        except NoNode:
            return
        for topic in marked:
            logger.info("the deletion of topic %s, interrupted earlier, is finished", topic)
            for topic_partition in [*self._logs, *self._disk.damaged]:
                if topic_partition.topic == topic:
                    self._disk.delete(topic_partition)
                    self._logs.pop(topic_partition, None)
            if await self._znodes.exists(TopicZnode.path(topic)) is not None:
                await store.delete_topic(self._znodes, topic, guard=self._controllership.guard)
            else:
                await self._znodes.delete(DeleteTopicsZnode.path(topic))

    # Directories that the store does not know

    async def _adopt(self, stored: Mapping[str, StoredTopic]) -> bool:
        """Register what only the disk knows; returns whether there was any."""
        adopted = False
        guard = self._controllership.guard
        for topic, logs in sorted(self._logs_by_topic().items()):
            numbers = [each.partition for each in self._disk.damaged if each.topic == topic]
            count = 1 + max(numbers + [log.topic_partition.partition for log in logs])
            known = stored.get(topic)
            if known is None:
                if not _may_be_adopted(topic):
                    continue
                logger.info("topic %s with %d partitions is adopted from the disk", topic, count)
                topic_id = _topic_id(logs) or Uuid.generate(self._randomness)
                assignment = self._own(range(count))
                try:
                    await store.create_topic(self._znodes, topic, topic_id, assignment, {}, {}, guard=guard)
                except TopicAlreadyExists:
                    logger.error("the logs of topic %s wait until its node can be read", topic)
                    continue
                adopted = True
            elif count > len(known.info.assignment):
                logger.info("topic %s has %d partitions on disk, more than in the store", topic, count)
                added = self._own(range(len(known.info.assignment), count))
                await store.add_partitions(self._znodes, topic, added, {}, guard=guard)
                adopted = True
        return adopted

    async def _retire_producer_ids(self) -> None:
        """Logs from elsewhere know producers whose ids this store never gave out: a new producer
        with such an id would be taken for the old one."""
        largest = self._disk.largest_producer_id()
        if largest >= 0:
            await store.retire_producer_ids(self._znodes, self._broker_id, largest)

    def _logs_by_topic(self) -> Mapping[str, list[Log]]:
        by_topic: defaultdict[str, list[Log]] = defaultdict(list)
        for log in self._logs.values():
            by_topic[log.topic_partition.topic].append(log)
        return by_topic

    def _own(self, partitions: Iterable[int]) -> dict[int, tuple[int, ...]]:
        return dict.fromkeys(partitions, (self._broker_id,))

    def _set_strays_aside(self, election: Election) -> None:
        """A log of a former topic of the same name must not be taken for this one's."""
        for partition in election.assignment:
            log = self._logs.get(TopicPartition(election.topic, partition))
            if log is not None and log.topic_id not in (None, election.topic_id):
                logger.warning("%s on disk belongs to another topic id; it is set aside", log.topic_partition)
                self._disk.set_aside_stray(log.topic_partition)

    # A new leader epoch

    async def _elect(self, topic: StoredTopic) -> Election:
        """Who leads what from now on; a topic from before topic ids gets one."""
        operations: list[Operation] = []
        topic_id = topic.info.topic_id
        if topic_id is None:
            logs = [log for log in self._logs.values() if log.topic_partition.topic == topic.name]
            topic_id = _topic_id(logs) or Uuid.generate(self._randomness)
            data = TopicZnode.encode(topic_id, topic.info.assignment)
            operations.append(SetData(TopicZnode.path(topic.name), data))
        if not topic.states and await self._znodes.exists(TopicZnode.partitions_path(topic.name)) is None:
            operations.append(Create(TopicZnode.partitions_path(topic.name)))
        states: dict[int, PartitionState] = {}
        for partition, assigned in topic.info.assignment.items():
            former = topic.states.get(partition)
            state = self._next_state(TopicPartition(topic.name, partition), assigned, former)
            states[partition] = state
            operations += await self._state_writes(topic.name, partition, former, state)
        assignment = {number: assigned.replicas for number, assigned in topic.info.assignment.items()}
        return Election(topic.name, topic_id, assignment, states, operations)

    def _next_state(
        self, topic_partition: TopicPartition, assigned: ReplicaAssignment, former: PartitionState | None
    ) -> PartitionState:
        log = self._logs.get(topic_partition)
        seen_epoch = log.leader_epochs.latest_epoch if log is not None else NO_EPOCH
        epoch = max(former.leader_epoch if former is not None else NO_EPOCH, seen_epoch) + 1
        isr = former.isr if former is not None else assigned.replicas
        # A log that was there before and is not found may be on the disk that failed.
        is_lost = log is None and former is not None and bool(self._disk.offline_directories)
        is_lost = is_lost or topic_partition in self._disk.damaged
        leader = elect_local(
            assigned.replicas,
            isr,
            self._broker_id,
            unclean=self._configs.topic_config(topic_partition.topic).unclean_leader_election_enable,
        )
        if leader is None or is_lost:
            return PartitionState(NO_LEADER, epoch, tuple(isr), self._controllership.epoch)
        return PartitionState(leader, epoch, (leader,), self._controllership.epoch)

    async def _state_writes(
        self, topic: str, partition: int, former: PartitionState | None, state: PartitionState
    ) -> list[Operation]:
        data = PartitionStateZnode.encode(state)
        path = PartitionStateZnode.path(topic, partition)
        if former is not None:
            return [SetData(path, data, former.state_version)]
        if await self._znodes.exists(path) is not None:
            # It cannot be read. Nobody but this broker ever led the partition, and the log knows its epochs.
            return [SetData(path, data)]
        parent = PartitionStateZnode.partition_path(topic, partition)
        made = [] if await self._znodes.exists(parent) is not None else [Create(parent)]
        return [*made, Create(path, data)]


def elect_local(
    replicas: Sequence[int], isr: Sequence[int], broker_id: BrokerId, *, unclean: bool
) -> BrokerId | None:
    """This broker, if it may lead: it has a replica, in sync unless that does not matter."""
    if broker_id in replicas and (broker_id in isr or unclean):
        return broker_id
    return None


def _topic_id(logs: Iterable[Log]) -> Uuid | None:
    return next((log.topic_id for log in logs if log.topic_id is not None), None)


def _may_be_adopted(topic: str) -> bool:
    if topic == METADATA_TOPIC:
        return False
    try:
        check_topic_name(topic)
    except InvalidTopicException as error:
        logger.warning("a directory is left alone: %s", error.message)
        return False
    return True
