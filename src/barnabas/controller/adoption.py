"""What the disk knows and the coordination store does not, written to the store before a start goes on.

The embedded store belongs to one broker, and its logs may know better. A partition directory that the
store does not know was written by another Kafka (or the store was lost): it is adopted as it is, with the
topic id that its `partition.metadata` names. A state that the store has lost, or that is older than the
log's last leader epoch, is written without a leader and with that epoch: the controller then elects in
a later one. Logs from elsewhere also know producers whose ids this store never gave out: those are
retired. In a cluster none of this holds: there the controller's list says what is stray.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from barnabas.cluster import topics as store
from barnabas.cluster.coordination import Coordination, Create, NoNode, Operation, SetData
from barnabas.cluster.notification_znodes import DeleteTopicsZnode
from barnabas.cluster.topics import StoredTopic
from barnabas.cluster.znodes import PartitionState, PartitionStateZnode, TopicZnode
from barnabas.config.repository import ConfigRepository
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
NO_CONTROLLER = 0
"""The controller epoch of a state that no controller has written."""


class LogsOnDisk(Protocol):
    """What is asked of the log manager."""

    @property
    def damaged(self) -> Mapping[TopicPartition, object]: ...
    def logs(self) -> Iterable[Log]: ...
    def largest_producer_id(self) -> int: ...
    def delete(self, topic_partition: TopicPartition) -> None: ...
    def set_aside_stray(self, topic_partition: TopicPartition) -> None: ...


class Adoption:
    """Used once, before the controller takes over."""

    def __init__(
        self,
        znodes: Coordination,
        broker_id: BrokerId,
        configs: ConfigRepository,
        randomness: Randomness,
        disk: LogsOnDisk,
    ) -> None:
        self._znodes = znodes
        self._configs = configs
        self._broker_id = broker_id
        self._randomness = randomness
        self._disk = disk
        self._logs: dict[TopicPartition, Log] = {}
        self._logs_of: Mapping[str, list[Log]] = {}

    async def run(self) -> None:
        self._logs = {log.topic_partition: log for log in self._disk.logs()}
        topics = await store.read_topics(self._znodes)
        await self._delete_marked(topics)
        self._logs_of = self._logs_by_topic()
        if await self._adopt(topics):
            topics = await store.read_topics(self._znodes)
            await self._retire_producer_ids()
        self._configs.keep_topics({name: topic.config for name, topic in topics.items()})
        operations: list[Operation] = []
        for topic in topics.values():
            topic_id, named = self._name(topic)
            self._set_strays_aside(topic, topic_id)
            operations += [*named, *await self._raise_epochs(topic)]
        for start in range(0, len(operations), OPERATIONS_PER_TRANSACTION):
            await self._znodes.multi(operations[start : start + OPERATIONS_PER_TRANSACTION])

    async def _delete_marked(self, stored: Mapping[str, StoredTopic]) -> None:
        """A topic that was to be deleted and is gone from the store must not come back from the disk. Those
        that the store still has are the controller's to delete."""
        try:
            marked = set(await self._znodes.children(DeleteTopicsZnode.PARENT)) - stored.keys()
        except NoNode:
            return
        for topic_partition in [*self._logs, *self._disk.damaged]:
            topic = topic_partition.topic
            if topic in marked and await self._znodes.exists(TopicZnode.path(topic)) is None:
                logger.info("%s is deleted, as its topic was", topic_partition)
                self._disk.delete(topic_partition)
                self._logs.pop(topic_partition, None)

    # Directories that the store does not know

    async def _adopt(self, stored: Mapping[str, StoredTopic]) -> bool:
        """Register what only the disk knows; returns whether there was any."""
        adopted = False
        for topic, logs in sorted(self._logs_of.items()):
            known = stored.get(topic)
            numbers = [each.partition for each in self._disk.damaged if each.topic == topic]
            numbers += [log.topic_partition.partition for log in logs if _may_belong(log, known)]
            count = 1 + max(numbers, default=-1)
            if known is None:
                if not _may_be_adopted(topic):
                    continue
                logger.info("topic %s with %d partitions is adopted from the disk", topic, count)
                topic_id = _topic_id(logs) or Uuid.generate(self._randomness)
                try:
                    await store.create_topic(self._znodes, topic, topic_id, self._own(range(count)), {})
                except TopicAlreadyExists:
                    logger.error("the logs of topic %s wait until its node can be read", topic)
                    continue
                adopted = True
            elif count > len(known.info.assignment):
                logger.info("topic %s has %d partitions on disk, more than in the store", topic, count)
                added = self._own(range(len(known.info.assignment), count))
                await store.add_partitions(self._znodes, topic, added)
                adopted = True
        return adopted

    async def _retire_producer_ids(self) -> None:
        """A new producer with an id of theirs would be taken for the old one."""
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

    # Topics that both know

    def _name(self, topic: StoredTopic) -> tuple[Uuid | None, Sequence[Operation]]:
        """The topic's id; one from before topic ids gets that of its logs, or later one of the controller."""
        if topic.info.topic_id is not None:
            return topic.info.topic_id, ()
        topic_id = _topic_id(log for log in self._logs.values() if log.topic_partition.topic == topic.name)
        if topic_id is None:
            return None, ()
        data = TopicZnode.encode(topic_id, topic.info.assignment)
        return topic_id, (SetData(TopicZnode.path(topic.name), data),)

    def _set_strays_aside(self, topic: StoredTopic, topic_id: Uuid | None) -> None:
        """A log of a former topic of the same name must not be taken for this one's."""
        for log in self._logs_of.get(topic.name, ()):
            if log.topic_id not in (None, topic_id):
                logger.warning("%s on disk belongs to another topic id; it is set aside", log.topic_partition)
                self._disk.set_aside_stray(log.topic_partition)

    async def _raise_epochs(self, topic: StoredTopic) -> list[Operation]:
        """Writes for the states that are not there, or behind the logs."""
        operations: list[Operation] = []
        for number, assigned in topic.info.assignment.items():
            former = topic.states.get(number)
            log = self._logs.get(TopicPartition(topic.name, number))
            seen_epoch = NO_EPOCH if log is None else log.leader_epochs.latest_epoch
            if former is None:
                state = PartitionState(NO_LEADER, seen_epoch, assigned.replicas, NO_CONTROLLER)
                operations += await self._new_state(topic.name, number, state)
            elif former.leader_epoch < seen_epoch:
                state = former._replace(leader=NO_LEADER, leader_epoch=seen_epoch)
                data = PartitionStateZnode.encode(state)
                path = PartitionStateZnode.path(topic.name, number)
                operations.append(SetData(path, data, former.state_version))
        if any(isinstance(each, Create) for each in operations):
            parent = TopicZnode.partitions_path(topic.name)
            if await self._znodes.exists(parent) is None:
                operations.insert(0, Create(parent))
        return operations

    async def _new_state(self, topic: str, partition: int, state: PartitionState) -> list[Operation]:
        data = PartitionStateZnode.encode(state)
        path = PartitionStateZnode.path(topic, partition)
        if await self._znodes.exists(path) is not None:
            # It cannot be read. Nobody but this broker ever led the partition, and the log knows its epochs.
            return [SetData(path, data)]
        if state.leader_epoch == NO_EPOCH:
            return []  # the controller begins with epoch 0
        parent = PartitionStateZnode.partition_path(topic, partition)
        made = [] if await self._znodes.exists(parent) is not None else [Create(parent)]
        return [*made, Create(path, data)]


def _topic_id(logs: Iterable[Log]) -> Uuid | None:
    return next((log.topic_id for log in logs if log.topic_id is not None), None)


def _may_belong(log: Log, topic: StoredTopic | None) -> bool:
    """Whether the log may be the topic's, and not that of a former one of its name."""
    return topic is None or topic.info.topic_id is None or log.topic_id in (None, topic.info.topic_id)


def _may_be_adopted(topic: str) -> bool:
    if topic == METADATA_TOPIC:
        return False
    try:
        check_topic_name(topic)
    except InvalidTopicException as error:
        logger.warning("a directory is left alone: %s", error.message)
        return False
    return True
