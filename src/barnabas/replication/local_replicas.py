"""Lifecycle of the replicas of this broker: created, elected, resigned, stopped, set aside.

Each change completes the requests that wait for the partition. It also notifies the coordinators, which act
for the partitions of one topic that this broker leads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from barnabas.config.log_config import LogConfig
from barnabas.core.errors import KafkaStorageError
from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.replication.follower.fetcher_manager import FetcherManager
from barnabas.replication.leader.delayed_requests import DelayedRequests
from barnabas.replication.partition.partition import Partition, PartitionHost
from barnabas.replication.partition.replica_table import ReplicaTable
from barnabas.storage.files.environment import LogDirectory
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)


class LeadershipListener(Protocol):
    """Coordinator that acts for the partitions of one topic that this broker leads."""

    @property
    def topic(self) -> str: ...
    def elected(self, partition: int, leader_epoch: int) -> None: ...
    def resigned(self, partition: int, leader_epoch: int | None = None) -> None: ...


class LocalReplicas:
    def __init__(
        self,
        table: ReplicaTable,
        host: PartitionHost,
        log_manager: LogManager,
        delayed: DelayedRequests,
        fetchers: FetcherManager,
    ) -> None:
        self._table = table
        self._host = host
        self._log_manager = log_manager
        self._delayed = delayed
        self._fetchers = fetchers
        self._high_watermarks: dict[TopicPartition, int] | None = None
        self._listeners: dict[str, LeadershipListener] = {}

    def notify_leadership(self, listener: LeadershipListener) -> None:
        """Notify the listener of every partition of its topic that is won or lost from now on."""
        self._listeners[listener.topic] = listener

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        *,
        is_new: bool = True,
        config: LogConfig | None = None,
    ) -> Partition:
        """The partition, with a new log if it has none. A partition that is not new may have its log in an
        offline directory: then none is created elsewhere."""
        logs = self._log_manager
        partition = self._table.find(topic_partition)
        if partition is not None:
            if partition.topic_id == ZERO_UUID and topic_id != ZERO_UUID:
                partition.assign_topic_id(topic_id)
            return partition
        if not is_new:
            self._check_findable(topic_partition)
        log = logs.get_or_create(topic_partition, None if topic_id == ZERO_UUID else topic_id)
        if config is not None and log.config != config:
            log.update_config(config)
        if self._high_watermarks is None:
            self._high_watermarks = logs.high_watermarks()
        checkpointed = self._high_watermarks.pop(topic_partition, None)
        if checkpointed is not None:
            log.update_high_watermark(max(checkpointed, log.high_watermark))
        metrics = self._table.metrics_of(topic_partition.topic)
        partition = Partition(topic_partition, topic_id, log, metrics, self._host)
        self._table.partitions[topic_partition] = partition
        return partition

    def _check_findable(self, topic_partition: TopicPartition) -> None:
        logs = self._log_manager
        if logs.offline_directories and not logs.is_found(topic_partition):
            raise KafkaStorageError(f"the log of {topic_partition} may be in a directory that is offline")

    def elected(self, partition: Partition, *, is_new: bool) -> None:
        """Note that this broker leads the partition; notify its coordinator and complete its requests."""
        topic, index = partition.topic_partition
        self._delayed.complete_all(partition.topic_partition)
        listener = self._listeners.get(topic)
        if listener is not None and is_new:
            listener.elected(index, partition.leadership.leader_epoch)

    def resigned(self, partition: Partition) -> None:
        """Note that the partition is led elsewhere, or has no leader."""
        topic, index = partition.topic_partition
        self._delayed.complete_all(partition.topic_partition)
        listener = self._listeners.get(topic)
        if listener is not None:
            listener.resigned(index, partition.leadership.leader_epoch)

    def stop(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop serving the partition, and complete the requests that wait for it.

        A replica that is not deleted keeps its epoch, so that stale requests are recognised. A replica that
        may be in an offline directory is not deleted: it would come back with the directory.
        """
        self._fetchers.unfollow(topic_partition)
        partition = self._table.find(topic_partition)
        if delete and partition is None:
            self._check_findable(topic_partition)
        if partition is not None:
            partition.resign()
            if delete:
                del self._table.partitions[topic_partition]
            self._delayed.complete_all(topic_partition)
            listener = self._listeners.get(topic_partition.topic)
            if listener is not None:
                listener.resigned(topic_partition.partition)
        if delete:
            self._log_manager.delete(topic_partition)

    def set_aside_strays(self, known: Mapping[TopicPartition, Uuid]) -> None:
        """Set aside the logs of partitions that are no longer assigned to this broker. That includes logs of
        deleted topics whose names were used again. The files are kept, under other names."""
        strays = [each for each in self._log_manager.damaged if each not in known]
        for log in self._log_manager.logs():
            topic_id = known.get(log.topic_partition)
            if topic_id is None or (log.topic_id is not None and topic_id not in (log.topic_id, ZERO_UUID)):
                strays.append(log.topic_partition)
        for topic_partition in strays:
            logger.warning(
                "partition %s: not assigned to this broker; its log is set aside as a stray. "
                "Delete the stray once its records are not needed",
                topic_partition,
            )
            self.stop(topic_partition, delete=False)
            self._table.partitions.pop(topic_partition, None)
            try:
                self._log_manager.set_aside_stray(topic_partition)
            except KafkaStorageError as error:
                logger.error(
                    "partition %s: setting the stray log aside failed: %s", topic_partition, error.message
                )

    def directory_failed(self, directory: LogDirectory) -> list[TopicPartition]:
        """Take the partitions of a failed disk offline, and complete the requests that wait for them."""
        lost = [key for key, each in self._table.partitions.items() if each.log.log_directory is directory]
        for key in lost:
            self._fetchers.unfollow(key)
            self._delayed.complete_all(key)
        return lost

    def log_failed(self, topic_partition: TopicPartition) -> None:
        """Refuse the partition of a failed log from now on, as after a restart."""
        self.stop(topic_partition, delete=False)
        self._table.partitions.pop(topic_partition, None)
