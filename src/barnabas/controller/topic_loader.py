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
from dataclasses import dataclass

from barnabas.cluster import topics as store
from barnabas.cluster.coordination import Coordination, Create, NoNode, Operation, SetData
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.cluster.notification_znodes import DeleteTopicsZnode
from barnabas.cluster.topics import StoredTopic
from barnabas.cluster.znodes import (
    PartitionState,
    PartitionStateZnode,
    ReplicaAssignment,
    TopicInfo,
    TopicZnode,
)
from barnabas.controller.configs import ConfigRepository
from barnabas.controller.election import Controllership
from barnabas.controller.local_partitions import LocalPartitions
from barnabas.controller.topic_rules import METADATA_TOPIC
from barnabas.core.errors import InvalidTopicException
from barnabas.core.ids import BrokerId, Randomness, TopicPartition, Uuid, check_topic_name

logger = logging.getLogger(__name__)

OPERATIONS_PER_TRANSACTION = 2_000
"""Elections do not depend on each other; ZooKeeper bounds the size of a transaction."""

NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A partition directory on this broker's disks."""

    topic_partition: TopicPartition
    topic_id: Uuid | None
    latest_epoch: int = NO_EPOCH


class TopicLoader:
    """Used once, before anything is served."""

    def __init__(
        self,
        znodes: Coordination,
        broker_id: BrokerId,
        controllership: Controllership,
        configs: ConfigRepository,
        metadata: MetadataCache,
        local: LocalPartitions,
        randomness: Randomness,
    ) -> None:
        self._znodes = znodes
        self._broker_id = broker_id
        self._controllership = controllership
        self._configs = configs
        self._metadata = metadata
        self._local = local
        self._randomness = randomness

    async def load(self, found: Iterable[FoundLog]) -> None:
        """Lead everything that the store and the disk know of."""
        logs = {log.topic_partition: log for log in found}
        await self._finish_deletions(logs)
        await self._adopt(await store.read_topics(self._znodes), logs)
        for topic in (await store.read_topics(self._znodes)).values():
            info, states = await self._elect(topic, logs)
            config = self._configs.add_topic(topic.name, topic.config)
            assignment = _replicas(info)
            assert info.topic_id is not None
            partitions = await self._local.lead(topic.name, info.topic_id, assignment, states, config)
            self._metadata.put_topic(topic.name, info.topic_id, partitions)

    # Deletions that a crash interrupted

    async def _finish_deletions(self, logs: dict[TopicPartition, FoundLog]) -> None:
        try:
            marked = await self._znodes.children(DeleteTopicsZnode.PARENT)
        except NoNode:
            return
        for topic in marked:
            logger.info("the deletion of topic %s, interrupted earlier, is finished", topic)
            doomed = sorted(each.partition for each in logs if each.topic == topic)
            await self._local.delete(topic, doomed)
            for partition in doomed:
                del logs[TopicPartition(topic, partition)]
            if await self._znodes.exists(TopicZnode.path(topic)) is not None:
                await store.delete_topic(self._znodes, topic, guard=self._controllership.guard)
            else:
                await self._znodes.delete(DeleteTopicsZnode.path(topic))

    # Directories that the store does not know

    async def _adopt(
        self, stored: Mapping[str, StoredTopic], logs: Mapping[TopicPartition, FoundLog]
    ) -> None:
        by_topic: defaultdict[str, list[FoundLog]] = defaultdict(list)
        for log in logs.values():
            by_topic[log.topic_partition.topic].append(log)
        guard = self._controllership.guard
        for topic, found in sorted(by_topic.items()):
            count = 1 + max(log.topic_partition.partition for log in found)
            known = stored.get(topic)
            if known is None:
                if _may_be_adopted(topic):
                    logger.info("topic %s with %d partitions is adopted from the disk", topic, count)
                    assignment = self._own(range(count))
                    topic_id = _topic_id(found) or Uuid.generate(self._randomness)
                    await store.create_topic(self._znodes, topic, topic_id, assignment, {}, {}, guard=guard)
            elif count > len(known.info.assignment):
                logger.info("topic %s has more partitions on disk than in the store: %d", topic, count)
                added = self._own(range(len(known.info.assignment), count))
                await store.add_partitions(self._znodes, topic, added, {}, guard=guard)

    def _own(self, partitions: Iterable[int]) -> dict[int, tuple[int, ...]]:
        return {partition: (self._broker_id,) for partition in partitions}

    # A new leader epoch

    async def _elect(
        self, topic: StoredTopic, logs: Mapping[TopicPartition, FoundLog]
    ) -> tuple[TopicInfo, dict[int, PartitionState]]:
        """Write and return who leads what; a topic from before topic ids gets one."""
        info = topic.info
        operations: list[Operation] = []
        if info.topic_id is None:
            found = [log for log in logs.values() if log.topic_partition.topic == topic.name]
            info = TopicInfo(_topic_id(found) or Uuid.generate(self._randomness), info.assignment)
            operations.append(SetData(TopicZnode.path(topic.name), TopicZnode.encode(*info)))
        if not topic.states and await self._znodes.exists(TopicZnode.partitions_path(topic.name)) is None:
            operations.append(Create(TopicZnode.partitions_path(topic.name)))
        states: dict[int, PartitionState] = {}
        for partition, assigned in info.assignment.items():
            log = logs.get(TopicPartition(topic.name, partition))
            former = topic.states.get(partition)
            state = self._next_state(assigned, former, log, topic.name)
            states[partition] = state
            operations += await self._writes(topic.name, partition, former, state)
        for start in range(0, len(operations), OPERATIONS_PER_TRANSACTION):
            some = operations[start : start + OPERATIONS_PER_TRANSACTION]
            await self._znodes.multi([*self._controllership.guard, *some])
        return info, states

    def _next_state(
        self,
        assigned: ReplicaAssignment,
        former: PartitionState | None,
        log: FoundLog | None,
        topic: str,
    ) -> PartitionState:
        controller_epoch = self._controllership.epoch
        seen_epoch = log.latest_epoch if log is not None else NO_EPOCH
        epoch = max(former.leader_epoch if former is not None else NO_EPOCH, seen_epoch) + 1
        isr = former.isr if former is not None else assigned.replicas
        leader = elect_local(
            assigned.replicas,
            isr,
            self._broker_id,
            unclean=self._configs.topic_config(topic).unclean_leader_election_enable,
        )
        if leader is None:
            return PartitionState(-1, epoch, tuple(isr), controller_epoch)
        return PartitionState(leader, epoch, (leader,), controller_epoch)

    async def _writes(
        self, topic: str, partition: int, former: PartitionState | None, state: PartitionState
    ) -> list[Operation]:
        data = PartitionStateZnode.encode(state)
        path = PartitionStateZnode.path(topic, partition)
        if former is not None:
            return [SetData(path, data, former.state_version)]
        parent = PartitionStateZnode.partition_path(topic, partition)
        parents = [] if await self._znodes.exists(parent) is not None else [Create(parent)]
        return [*parents, Create(path, data)]


def elect_local(
    replicas: Sequence[int], isr: Sequence[int], broker_id: BrokerId, *, unclean: bool
) -> BrokerId | None:
    """This broker, if it may lead: it has a replica, in sync unless that does not matter."""
    if broker_id in replicas and (broker_id in isr or unclean):
        return broker_id
    return None


def _replicas(info: TopicInfo) -> dict[int, tuple[int, ...]]:
    return {partition: assigned.replicas for partition, assigned in info.assignment.items()}


def _topic_id(found: Iterable[FoundLog]) -> Uuid | None:
    return next((log.topic_id for log in found if log.topic_id is not None), None)


def _may_be_adopted(topic: str) -> bool:
    if topic == METADATA_TOPIC:
        return False
    try:
        check_topic_name(topic)
    except InvalidTopicException as error:
        logger.warning("a directory is left alone: %s", error.message)
        return False
    return True
