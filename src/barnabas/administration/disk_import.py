"""Import of log directories that the coordination store does not know, before the broker starts.

The embedded store belongs to one broker, and its logs may be newer than the store.

- A partition directory that the store does not know comes from Apache Kafka, or the store was lost. It is
  adopted with the topic id in its `partition.metadata` and the settings that `imported_settings` finds.
- A partition state that is missing, or older than the log's last leader epoch, is written with that epoch and
  without a leader. The controller then elects a leader in a later epoch.
- Imported logs hold producer ids that this store never allocated. Those ids are retired.

None of this holds in a cluster: there the controller's assignment says which directories are stray.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from barnabas.administration.imported_settings import ImportedSettings, InternalConfigs, SettingsOnDisk
from barnabas.administration.topic_rules import METADATA_TOPIC
from barnabas.cluster.coordination.contract import Coordination, Create, NoNode, Operation, SetData
from barnabas.cluster.stores import topics as store
from barnabas.cluster.stores.topics import StoredTopic
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode, TopicZnode
from barnabas.cluster.znodes.notifications import DeleteTopicsZnode
from barnabas.config.dynamic.repository import ConfigRepository
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
"""Controller epoch of a partition state that no controller has written."""


class LogsOnDisk(SettingsOnDisk, Protocol):
    """Operations that the import needs of the log manager."""

    @property
    def damaged(self) -> Mapping[TopicPartition, object]: ...
    def logs(self) -> Iterable[Log]: ...
    def largest_producer_id(self) -> int: ...
    def delete(self, topic_partition: TopicPartition) -> None: ...
    def set_aside_stray(self, topic_partition: TopicPartition) -> None: ...


class DiskImport:
    """One import, run before the controller takes over."""

    def __init__(
        self,
        znodes: Coordination,
        broker_id: BrokerId,
        configs: ConfigRepository,
        randomness: Randomness,
        disk: LogsOnDisk,
        internal_configs: InternalConfigs,
    ) -> None:
        self._znodes = znodes
        self._configs = configs
        self._broker_id = broker_id
        self._randomness = randomness
        self._disk = disk
        self._settings = ImportedSettings(configs, broker_id, disk, internal_configs)
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
        """Delete the logs of topics that are marked for deletion and gone from the store.

        Such a topic must not come back from the disk. The controller deletes marked topics that the store
        still has.
        """
        try:
            marked = set(await self._znodes.children(DeleteTopicsZnode.PARENT)) - stored.keys()
        except NoNode:
            return
        for topic_partition in [*self._logs, *self._disk.damaged]:
            topic = topic_partition.topic
            if topic in marked and await self._znodes.exists(TopicZnode.path(topic)) is None:
                logger.info("partition %s: log is deleted, because its topic was deleted", topic_partition)
                self._disk.delete(topic_partition)
                self._logs.pop(topic_partition, None)

    # --- directories that the store does not know ---

    async def _adopt(self, stored: Mapping[str, StoredTopic]) -> bool:
        """Register the topics and partitions that only the disk knows. Returns whether there were any."""
        adopted = False
        if any(topic not in stored and _may_be_adopted(topic) for topic in self._logs_of):
            await self._settings.load()
        for topic, logs in sorted(self._logs_of.items()):
            known = stored.get(topic)
            numbers = [each.partition for each in self._disk.damaged if each.topic == topic]
            numbers += [log.topic_partition.partition for log in logs if _may_belong(log, known)]
            count = 1 + max(numbers, default=-1)
            if known is None:
                if not _may_be_adopted(topic):
                    continue
                found_id = _topic_id(logs)
                config = self._settings.of(topic, found_id)
                shown = (
                    ", ".join(f"{key}={value}" for key, value in sorted(config.items()))
                    or "no settings of its own"
                )
                logger.info("topic %s: imported from disk with %d partitions (%s)", topic, count, shown)
                topic_id = found_id or Uuid.generate(self._randomness)
                try:
                    await store.create_topic(self._znodes, topic, topic_id, self._own(range(count)), config)
                except TopicAlreadyExists:
                    logger.error("topic %s: logs are not imported, because its znode cannot be read", topic)
                    continue
                adopted = True
            elif count > len(known.info.assignment):
                logger.info("topic %s: partitions are added up to the %d found on disk", topic, count)
                added = self._own(range(len(known.info.assignment), count))
                await store.add_partitions(self._znodes, topic, added)
                adopted = True
        self._settings.finish()
        return adopted

    async def _retire_producer_ids(self) -> None:
        """Never allocate a producer id that the logs already know.

        The broker would take a new producer with such an id for the old one. It would acknowledge the records
        as duplicates and not write them. So the store alone is never trusted.
        """
        largest = max(self._disk.largest_producer_id(), self._settings.last_producer_id)
        if largest >= 0:
            await store.retire_producer_ids(self._znodes, self._broker_id, largest)

    def _logs_by_topic(self) -> Mapping[str, list[Log]]:
        by_topic: defaultdict[str, list[Log]] = defaultdict(list)
        for log in self._logs.values():
            by_topic[log.topic_partition.topic].append(log)
        return by_topic

    def _own(self, partitions: Iterable[int]) -> dict[int, tuple[int, ...]]:
        return dict.fromkeys(partitions, (self._broker_id,))

    # --- topics that both the store and the disk know ---

    def _name(self, topic: StoredTopic) -> tuple[Uuid | None, Sequence[Operation]]:
        """Topic id of a topic. A topic from before topic ids gets its logs' id, or later one from the
        controller.
        """
        if topic.info.topic_id is not None:
            return topic.info.topic_id, ()
        topic_id = _topic_id(log for log in self._logs.values() if log.topic_partition.topic == topic.name)
        if topic_id is None:
            return None, ()
        data = TopicZnode.encode(topic_id, topic.info.assignment)
        return topic_id, (SetData(TopicZnode.path(topic.name), data),)

    def _set_strays_aside(self, topic: StoredTopic, topic_id: Uuid | None) -> None:
        """Keep the logs of a deleted topic of the same name out of this topic."""
        for log in self._logs_of.get(topic.name, ()):
            if log.topic_id not in (None, topic_id):
                logger.warning(
                    "partition %s: log belongs to another topic id and is set aside as stray",
                    log.topic_partition,
                )
                self._disk.set_aside_stray(log.topic_partition)

    async def _raise_epochs(self, topic: StoredTopic) -> list[Operation]:
        """Writes for partition states that are missing or behind the logs."""
        operations: list[Operation] = []
        for number, assigned in topic.info.assignment.items():
            previous = topic.states.get(number)
            log = self._logs.get(TopicPartition(topic.name, number))
            seen_epoch = NO_EPOCH if log is None else log.leader_epochs.latest_epoch
            if previous is None:
                state = PartitionState(NO_LEADER, seen_epoch, assigned.replicas, NO_CONTROLLER)
                operations += await self._new_state(topic.name, number, state)
            elif previous.leader_epoch < seen_epoch:
                state = previous._replace(leader=NO_LEADER, leader_epoch=seen_epoch)
                data = PartitionStateZnode.encode(state)
                path = PartitionStateZnode.path(topic.name, number)
                operations.append(SetData(path, data, previous.state_version))
        if any(isinstance(each, Create) for each in operations):
            parent = TopicZnode.partitions_path(topic.name)
            if await self._znodes.exists(parent) is None:
                operations.insert(0, Create(parent))
        return operations

    async def _new_state(self, topic: str, partition: int, state: PartitionState) -> list[Operation]:
        data = PartitionStateZnode.encode(state)
        path = PartitionStateZnode.path(topic, partition)
        if await self._znodes.exists(path) is not None:
            # The state cannot be read. Only this broker ever led the partition, and the log knows its epochs.
            return [SetData(path, data)]
        if state.leader_epoch == NO_EPOCH:
            return []  # the controller begins with epoch 0
        parent = PartitionStateZnode.partition_path(topic, partition)
        made = [] if await self._znodes.exists(parent) is not None else [Create(parent)]
        return [*made, Create(path, data)]


def _topic_id(logs: Iterable[Log]) -> Uuid | None:
    return next((log.topic_id for log in logs if log.topic_id is not None), None)


def _may_belong(log: Log, topic: StoredTopic | None) -> bool:
    """Whether the log may belong to this topic, and not to a deleted topic of the same name."""
    return topic is None or topic.info.topic_id is None or log.topic_id in (None, topic.info.topic_id)


def _may_be_adopted(topic: str) -> bool:
    if topic == METADATA_TOPIC:
        return False
    try:
        check_topic_name(topic)
    except InvalidTopicException as error:
        logger.warning("directory is not imported: %s", error.message)
        return False
    return True
