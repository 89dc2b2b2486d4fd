"""All partitions of this broker, and the way every write and read of them takes.

Producers, group commits and transaction markers all write through here; consumers and
followers all read through here. The manager tries at once; what must wait goes to one of
three purgatories.

Three layers below it hold what does not depend on orders: which partitions there are (`replica_table`),
who waits for them (`replica_waiting`), how they are read (`replica_reading`).

On a single node that is all. In a cluster it also carries out the controller's orders
(`leadership`), follows other brokers (`fetcher_manager`) and keeps the ISR (`isr`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.config.log_config import LogConfig
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    KafkaStorageError,
    StaleBrokerEpoch,
)
from barnabas.core.ids import ZERO_UUID, BrokerId, TopicPartition, Uuid
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Cancellable, Scheduler
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.purgatory.timer import Timer
from barnabas.replication.figures import register_figures
from barnabas.replication.follower.fetcher_manager import FetcherManager
from barnabas.replication.follower.replica_fetcher import Connect, ReplicaFetcher
from barnabas.replication.leader.delayed_produce import DelayedProduce
from barnabas.replication.leader.isr import IsrKeeper, IsrStore
from barnabas.replication.leader.lease import Lease
from barnabas.replication.leader.remote_replica import NO_BROKER_EPOCH
from barnabas.replication.leadership import LeadershipOrders
from barnabas.replication.log_dir_mover import LogDirMover
from barnabas.replication.partition import Partition
from barnabas.replication.partition_leadership import PartitionHost
from barnabas.replication.partition_replication import ReplicatedPartition
from barnabas.replication.replica_reading import ReadableReplicas
from barnabas.replication.settings import ReplicationSettings
from barnabas.replication.throttle import ReplicationThrottle
from barnabas.storage.environment import LogDirectory
from barnabas.storage.log.log import Log
from barnabas.storage.log_manager import LogManager

logger = logging.getLogger(__name__)


class LeadershipListener(Protocol):
    """Somebody who acts for the partitions of one topic that this broker leads."""

    @property
    def topic(self) -> str: ...
    def elected(self, partition: int, leader_epoch: int) -> None: ...
    def resigned(self, partition: int, leader_epoch: int | None = None) -> None: ...


class ReplicaManager(ReadableReplicas):
    def __init__(
        self,
        broker_id: BrokerId,
        log_manager: LogManager,
        clock: Clock,
        timer: Timer,
        metrics: Metrics,
        *,
        isr_store: IsrStore | None = None,
        connect: Connect | None = None,
        metadata: MetadataCache | None = None,
        lease: Lease | None = None,
        broker_epoch: Callable[[], int] = lambda: NO_BROKER_EPOCH,
        scheduler: Scheduler | None = None,
        settings: ReplicationSettings | None = None,
    ) -> None:
        """`connect` opens a channel to another broker, and `isr_store` writes down who is in sync:
        both belong to a cluster, as do `metadata` (which brokers live, and in which racks) and
        `lease`."""
        settings = settings if settings is not None else ReplicationSettings()
        super().__init__(broker_id, clock, timer, metrics, settings, metadata)
        self.log_manager = log_manager
        self._check_absent = log_manager.check_undamaged
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._scheduler = scheduler
        self._timers: list[Cancellable] = []
        self._high_watermarks: dict[TopicPartition, int] | None = None
        self._leadership_listeners: dict[str, LeadershipListener] = {}
        self._isr = IsrKeeper(isr_store, self._isr_changed, metrics)
        self._host = PartitionHost(
            clock,
            settings,
            lease=lease,
            advanced=self._follower_advanced,
            may_join_isr=self._isr.expand,
            lost_tail=self._isr.expel,
        )
        if metadata is not None:
            self._host.is_live = metadata.is_live
        self._orders = LeadershipOrders(self)
        self._follower_throttle = ReplicationThrottle(
            clock,
            lambda: self.settings.follower_throttled_rate,
            lambda partition: partition.log.config.follower_replication_throttled_replicas,
        )
        self.fetchers = FetcherManager(self._make_fetcher, lambda: self.settings.num_replica_fetchers)
        self.mover = LogDirMover(log_manager, self._partitions)
        register_figures(metrics, self._partitions, log_manager, self.fetchers)

    def start(self) -> None:
        """Begin what happens from time to time; only a cluster has any of it."""
        if self._scheduler is not None:
            period_ms = self.settings.replica_lag_time_max_ms / 2
            self._timers.append(
                self._scheduler.every(period_ms, lambda: self._isr.shrink_all(list(self.partitions())))
            )

    async def close(self) -> None:
        """Follow nobody any more, and write no more ISRs."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        await self.mover.close()
        await self.fetchers.close()
        await self._isr.close()

    def answer_waiting(self) -> None:
        """No more requests are read: fetches get what there is, and what followers would have to
        fetch is not acknowledged any more. Who waits for our own disk may go on waiting."""
        self.fetch_purgatory.complete_all()
        self.produce_purgatory.complete_all(
            lambda each: isinstance(each, DelayedProduce) and each.waits_for_followers
        )
        self.delete_records_purgatory.complete_all()

    def _make_fetcher(self, source: BrokerId) -> ReplicaFetcher:
        assert self._connect is not None, "a broker that follows others must be able to reach them"
        return ReplicaFetcher(
            source,
            self.broker_id,
            connect=self._connect,
            log_manager=self.log_manager,
            clock=self._clock,
            settings=self.settings,
            throttle=self._follower_throttle,
            broker_epoch=self._broker_epoch,
            appended=self._follower_appended,
        )

    # Which partitions there are

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
        partition = self.get_or_create(topic_partition, topic_id, config=config)
        self.elected(partition, is_new=partition.become_leader(leader_epoch, replicas, isr))

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        *,
        is_new: bool = True,
        config: LogConfig | None = None,
    ) -> Partition:
        """The partition; its log is made if this is the first we hear of it. The log of one that is
        not new may lie in a directory that is offline: then none is made elsewhere."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if partition.topic_id == ZERO_UUID and topic_id != ZERO_UUID:
                partition.log.assign_topic_id(topic_id)
                partition.topic_id = topic_id
            return partition
        if not is_new and self.log_manager.offline_directories and not self.log_manager.get(topic_partition):
            raise KafkaStorageError(f"the log of {topic_partition} may be in a directory that is offline")
        log = self.log_manager.get_or_create(topic_partition, None if topic_id == ZERO_UUID else topic_id)
        if config is not None and log.config != config:
            log.update_config(config)
        if self._high_watermarks is None:
            self._high_watermarks = self.log_manager.high_watermarks()
        checkpointed = self._high_watermarks.pop(topic_partition, None)
        if checkpointed is not None:
            log.update_high_watermark(max(checkpointed, log.high_watermark))
        metrics = self.metrics_of(topic_partition.topic)
        partition = Partition(topic_partition, topic_id, log, self.broker_id, metrics, self._host)
        self._partitions[topic_partition] = partition
        return partition

    # What the controller orders

    async def become_leader_or_follower(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        return await self._orders.lead_and_follow(request)

    async def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        return await self._orders.stop(request)

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        """Refuse orders of a former controller, and orders for a former life of this broker."""
        if NO_BROKER_EPOCH < broker_epoch < self._broker_epoch():
            raise StaleBrokerEpoch(f"the broker epoch is {self._broker_epoch()}, not {broker_epoch}")
        self._orders.check_controller_epoch(controller_epoch)

    def elected(self, partition: Partition, *, is_new: bool) -> None:
        """The partition is led here; who waits for it, and who acts for it, is told."""
        topic, index = partition.topic_partition
        self._complete_all(partition.topic_partition)
        listener = self._leadership_listeners.get(topic)
        if listener is not None and is_new:
            listener.elected(index, partition.leader_epoch)

    def resigned(self, partition: Partition) -> None:
        """The partition is led elsewhere, or nowhere."""
        topic, index = partition.topic_partition
        self._complete_all(partition.topic_partition)
        listener = self._leadership_listeners.get(topic)
        if listener is not None:
            listener.resigned(index, partition.leader_epoch)

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Serve the partition no longer; whoever waits for it is told so at once.

        A replica that is not deleted stays known with its epoch, so that old orders are recognised."""
        self.fetchers.unfollow(topic_partition)
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            partition.resign()
            if delete:
                del self._partitions[topic_partition]
            self._complete_all(topic_partition)
            listener = self._leadership_listeners.get(topic_partition.topic)
            if listener is not None:
                listener.resigned(topic_partition.partition)
        if delete:
            self.log_manager.delete(topic_partition)

    def set_aside_strays(self, known: Mapping[TopicPartition, Uuid]) -> None:
        """Put away the logs of partitions that the cluster no longer gives to this broker, and those of
        former topics whose names were given again. The files are kept, under other names."""
        strays = [each for each in self.log_manager.damaged if each not in known]
        for log in self.log_manager.logs():
            topic_id = known.get(log.topic_partition)
            if topic_id is None or (log.topic_id is not None and topic_id not in (log.topic_id, ZERO_UUID)):
                strays.append(log.topic_partition)
        for topic_partition in strays:
            logger.warning("%s is not assigned to this broker: its log is set aside", topic_partition)
            self.stop_replica(topic_partition, delete=False)
            self._partitions.pop(topic_partition, None)
            try:
                self.log_manager.set_aside_stray(topic_partition)
            except KafkaStorageError as error:
                logger.error("the log of %s could not be set aside: %s", topic_partition, error.message)

    def directory_failed(self, directory: LogDirectory) -> list[TopicPartition]:
        """A disk is gone, and its partitions with it: who waits for them is told at once."""
        lost = [key for key, each in self._partitions.items() if each.log.log_directory is directory]
        for key in lost:
            self.fetchers.unfollow(key)
            self._complete_all(key)
        return lost

    # What happened to a partition

    def flushed(self, log: Log) -> None:
        """A group commit is done: what waited for the disk may be acknowledged."""
        partition = self._partitions.get(log.topic_partition)
        if partition is not None:
            partition.maybe_advance_high_watermark()
            self._complete_all(log.topic_partition)
            self.fetchers.flushed(log.topic_partition)

    def _follower_advanced(self, partition: ReplicatedPartition) -> None:
        """A follower's fetch moved the high watermark or the low one."""
        self._complete_committed(partition.topic_partition)

    def _follower_appended(self, partition: Partition) -> None:
        """We have copied records: consumers that read from this follower may go on."""
        self._complete_fetch(partition.topic_partition)

    def _isr_changed(self, partition: ReplicatedPartition) -> None:
        self._complete_all(partition.topic_partition)
