"""All partitions of this broker, and the way every write and read of them takes.

Producers, group commits and transaction markers all write through here; consumers and
followers all read through here. The manager tries at once; what must wait goes to one of
three purgatories, and the events that can end the waiting (an append, a rising high
watermark, a moved log start, a lost leadership) are reported by key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from barnabas.core.clock import Clock
from barnabas.core.errors import (
    KafkaError,
    KafkaStorageError,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.core.metrics import Metrics
from barnabas.purgatory.purgatory import Purgatory
from barnabas.purgatory.timer import Timer
from barnabas.replication.delayed_delete_records import DelayedDeleteRecords, PendingDeletion
from barnabas.replication.delayed_fetch import DelayedFetch
from barnabas.replication.delayed_produce import DelayedProduce, PendingAck
from barnabas.replication.fetching import FetchParams, FetchPartition, PartitionRead
from barnabas.replication.partition import Partition
from barnabas.replication.topic_metrics import TopicMetrics
from barnabas.storage.environment import LogDirectory
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)


class LeadershipListener(Protocol):
    """Somebody who acts for the partitions of one topic that this broker leads."""

    @property
    def topic(self) -> str: ...
    def elected(self, partition: int, leader_epoch: int) -> None: ...
    def resigned(self, partition: int, leader_epoch: int | None = None) -> None: ...


class ReplicaManager:
    def __init__(
        self, broker_id: BrokerId, log_manager: LogManager, clock: Clock, timer: Timer, metrics: Metrics
    ) -> None:
        self.broker_id = broker_id
        self.log_manager = log_manager
        self._clock = clock
        self._metrics = metrics
        self._partitions: dict[TopicPartition, Partition] = {}
        self._topic_metrics: dict[str, TopicMetrics] = {}
        self._leadership_listeners: dict[str, LeadershipListener] = {}
        self.produce_purgatory = Purgatory("Produce", timer, metrics=metrics)
        self.fetch_purgatory = Purgatory("Fetch", timer, metrics=metrics)
        self.delete_records_purgatory = Purgatory("DeleteRecords", timer, metrics=metrics)
        metrics.gauge("kafka_partitions", "Partitions on this broker.", lambda: len(self._partitions))

    # Which partitions there are

    def partition(self, topic: str, index: int) -> Partition:
        # A plain tuple is equal to the TopicPartition that is the key, and cheaper to make.
        found: Partition | None = self._partitions.get((topic, index))  # type: ignore[call-overload]
        if found is None:
            raise UnknownTopicOrPartition(f"this broker has no partition {topic}-{index}")
        if found.log.log_directory.failure is not None:
            raise KafkaStorageError(f"the log directory of {topic}-{index} is offline")
        return found

    def partitions(self) -> Iterable[Partition]:
        return self._partitions.values()

    def tell_leadership(self, listener: LeadershipListener) -> None:
        """Report every partition of the listener's topic that is won or lost from now on."""
        self._leadership_listeners[listener.topic] = listener

    def become_leader(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        leader_epoch: int,
        replicas: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        config: LogConfig,
    ) -> None:
        """Lead a partition, with its log created if this is the first we hear of it."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            log = self.log_manager.get_or_create(topic_partition, topic_id)
            if log.config != config:
                log.update_config(config)
            metrics = self.metrics_of(topic_partition.topic)
            partition = Partition(topic_partition, topic_id, log, self.broker_id, metrics)
            self._partitions[topic_partition] = partition
        partition.become_leader(leader_epoch, replicas, isr)
        self._complete_all(topic_partition)
        listener = self._leadership_listeners.get(topic_partition.topic)
        if listener is not None:
            listener.elected(topic_partition.partition, leader_epoch)

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Serve the partition no longer; whoever waits for it is told so at once."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is None:
            return
        partition.leader_id = BrokerId(-1)
        self._complete_all(topic_partition)
        listener = self._leadership_listeners.get(topic_partition.topic)
        if listener is not None:
            listener.resigned(topic_partition.partition)
        if delete:
            self.log_manager.delete(topic_partition)

    def forget_topic(self, topic: str) -> None:
        """A topic is gone for good: so are its figures."""
        self._topic_metrics.pop(topic, None)
        self._metrics.forget(topic=topic)

    def directory_failed(self, directory: LogDirectory) -> list[TopicPartition]:
        """A disk is gone, and its partitions with it: who waits for them is told at once."""
        lost = [key for key, each in self._partitions.items() if each.log.log_directory is directory]
        for key in lost:
            self._complete_all(key)
        return lost

    def update_log_config(self, topic: str, config: LogConfig) -> None:
        for topic_partition, partition in self._partitions.items():
            if topic_partition.topic == topic:
                partition.log.update_config(config)

    def metrics_of(self, topic: str) -> TopicMetrics:
        """The counters of a topic that has a partition here."""
        found = self._topic_metrics.get(topic)
        if found is None:
            found = self._topic_metrics[topic] = TopicMetrics(self._metrics, topic)
        return found

    # Writing

    def await_acks(
        self,
        timeout_ms: float,
        required_acks: int,
        pending: Sequence[PendingAck],
        respond: Callable[[], None],
    ) -> None:
        """Call `respond` when every append of `pending` is as safe as was asked for, or time is up."""
        operation = DelayedProduce(timeout_ms, required_acks, pending, respond)
        keys = [ack.partition.topic_partition for ack in pending]
        self.produce_purgatory.try_complete_else_watch(operation, keys)

    def wake(self, key: TopicPartition) -> None:
        """Records were appended: readers that wait for them may go on, and so may producers
        whose earlier records are below the high watermark now."""
        self.fetch_purgatory.check_and_complete(key)
        self.produce_purgatory.check_and_complete(key)

    def flushed(self, log: Log) -> None:
        """A group commit is done: what waited for the disk may be acknowledged."""
        partition = self._partitions.get(log.topic_partition)
        if partition is not None:
            partition.maybe_advance_high_watermark()
            self._complete_all(log.topic_partition)

    def delete_records(
        self,
        timeout_ms: float,
        pending: Sequence[PendingDeletion],
        respond: Callable[[], None],
    ) -> None:
        """Call `respond` when every replica has forgotten the records, or time is up."""
        operation = DelayedDeleteRecords(timeout_ms, pending, respond)
        keys = [deletion.partition.topic_partition for deletion in pending]
        self.delete_records_purgatory.try_complete_else_watch(operation, keys)

    def _complete_all(self, key: TopicPartition) -> None:
        self.produce_purgatory.check_and_complete(key)
        self.fetch_purgatory.check_and_complete(key)
        self.delete_records_purgatory.check_and_complete(key)

    def count_failed_produce(self, topic: str) -> None:
        known = self._topic_metrics.get(topic)
        if known is not None:
            known.failed_produce.value += 1

    # Reading

    def fetch(
        self,
        params: FetchParams,
        asks: Sequence[FetchPartition],
        respond: Callable[[list[PartitionRead]], None],
    ) -> None:
        """Read, and answer at once when nothing should wait, nothing is asked, there is enough,
        or something went wrong; otherwise once there is enough or time is up."""
        reads = self.read(params, asks)
        if params.max_wait_ms <= 0 or not asks or _is_enough(reads, params.min_bytes):
            respond(reads)
            return
        operation = DelayedFetch(self, params, asks, respond)
        self.fetch_purgatory.try_complete_else_watch(operation, [ask.topic_partition for ask in asks])

    def read(self, params: FetchParams, asks: Sequence[FetchPartition]) -> list[PartitionRead]:
        """What can be read now, within `max_bytes` over all partitions together.

        The first partition that has anything gives at least one whole batch, however large, or
        a reader with small limits would never get past a large batch.
        """
        reads: list[PartitionRead] = []
        left_bytes = params.max_bytes
        min_one_batch = True
        for ask in asks:
            read = self._read_one(params, ask, min(ask.max_bytes, left_bytes), min_one_batch=min_one_batch)
            reads.append(read)
            if read.records is not None:
                left_bytes -= read.records.length
                min_one_batch = False
        return reads

    def _read_one(
        self, params: FetchParams, ask: FetchPartition, max_bytes: int, *, min_one_batch: bool
    ) -> PartitionRead:
        if not ask.topic_partition.topic:
            return PartitionRead(UnknownTopicId.code)
        try:
            partition = self.partition(*ask.topic_partition)
            return partition.read(ask, params, max_bytes, min_one_batch=min_one_batch)
        except KafkaError as error:
            return self._failed_read(ask, error)
        except Exception as error:
            logger.exception("reading %s failed", ask.topic_partition)
            return self._failed_read(ask, UnknownServerError(str(error)))

    def _failed_read(self, ask: FetchPartition, error: KafkaError) -> PartitionRead:
        known = self._topic_metrics.get(ask.topic_partition.topic)
        if known is not None:
            known.failed_fetch.value += 1
        return PartitionRead(error.code)


def _is_enough(reads: list[PartitionRead], min_bytes: int) -> bool:
    total_bytes = 0
    for read in reads:
        if read.error_code or read.diverging_epoch is not None:
            return True
        if read.records is not None:
            total_bytes += read.records.length
    return total_bytes >= min_bytes
