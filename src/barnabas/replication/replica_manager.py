"""All partitions of this broker, and the way every write and read of them takes.

Producers, group commits and transaction markers all write through here; consumers and
followers all read through here. The manager tries at once; what must wait goes to one of
three purgatories, and the events that can end the waiting (an append, a rising high
watermark, a moved log start, a lost leadership) are reported by key.

On a single node that is all. In a cluster it also carries out the controller's orders
(`leadership`), follows other brokers (`fetcher_manager`) and keeps the ISR (`isr`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    KafkaError,
    KafkaStorageError,
    StaleBrokerEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import ZERO_UUID, BrokerId, TopicPartition, Uuid
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Cancellable, Scheduler
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.purgatory.purgatory import Purgatory
from barnabas.purgatory.timer import Timer
from barnabas.replication.delayed_delete_records import DelayedDeleteRecords, PendingDeletion
from barnabas.replication.delayed_fetch import DelayedFetch
from barnabas.replication.delayed_produce import DelayedProduce, PendingAck
from barnabas.replication.fetcher_manager import FetcherManager
from barnabas.replication.fetching import NO_NEWS, NO_REPLICA, FetchParams, FetchPartition, PartitionRead
from barnabas.replication.figures import register_figures
from barnabas.replication.isr import IsrKeeper, IsrStore
from barnabas.replication.leadership import LeadershipOrders
from barnabas.replication.lease import Lease
from barnabas.replication.log_dir_mover import LogDirMover
from barnabas.replication.partition import Partition, PartitionHost
from barnabas.replication.remote_replica import NO_BROKER_EPOCH
from barnabas.replication.replica_fetcher import Connect, ReplicaFetcher
from barnabas.replication.replica_selector import ReplicaSelector
from barnabas.replication.settings import ReplicationSettings
from barnabas.replication.throttle import ReplicationThrottle
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
        lease_expires_ms: Callable[[], float] | None = None,
        broker_epoch: Callable[[], int] = lambda: NO_BROKER_EPOCH,
        scheduler: Scheduler | None = None,
        settings: ReplicationSettings | None = None,
    ) -> None:
        """`connect` opens a channel to another broker, and `isr_store` writes down who is in sync:
        both belong to a cluster, as do `metadata` (which brokers live, and in which racks) and
        `lease_expires_ms` (in the clock's monotonic time)."""
        self.broker_id = broker_id
        self.log_manager = log_manager
        self.settings = settings if settings is not None else ReplicationSettings()
        self._clock = clock
        self._metrics = metrics
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._scheduler = scheduler
        self._timers: list[Cancellable] = []
        self._partitions: dict[TopicPartition, Partition] = {}
        self._high_watermarks: dict[TopicPartition, int] | None = None
        self._topic_metrics: dict[str, TopicMetrics] = {}
        self._leadership_listeners: dict[str, LeadershipListener] = {}
        self.produce_purgatory = Purgatory("Produce", timer, metrics=metrics)
        self.fetch_purgatory = Purgatory("Fetch", timer, metrics=metrics)
        self.delete_records_purgatory = Purgatory("DeleteRecords", timer, metrics=metrics)
        self._isr = IsrKeeper(isr_store, self._isr_changed, metrics)
        self._host = PartitionHost(
            clock,
            self.settings,
            lease=None if lease_expires_ms is None else Lease(clock, lease_expires_ms),
            advanced=self._follower_advanced,
            may_join_isr=self._isr.expand,
        )
        if metadata is not None:
            self._host.is_live = metadata.is_live
        self._selector = ReplicaSelector(broker_id, self.settings, metadata)
        self._orders = LeadershipOrders(self)
        self._leader_throttle = ReplicationThrottle(
            clock,
            lambda: self.settings.leader_throttled_rate,
            lambda partition: partition.log.config.leader_replication_throttled_replicas,
        )
        self._follower_throttle = ReplicationThrottle(
            clock,
            lambda: self.settings.follower_throttled_rate,
            lambda partition: partition.log.config.follower_replication_throttled_replicas,
        )
        self.fetchers = FetcherManager(self._make_fetcher, lambda: self.settings.num_replica_fetchers)
        self.mover = LogDirMover(log_manager, self._partitions)
        register_figures(metrics, self._partitions, log_manager.damaged, self.fetchers)

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

    def partition(self, topic: str, index: int) -> Partition:
        # A plain tuple is equal to the TopicPartition that is the key, and cheaper to make.
        found: Partition | None = self._partitions.get((topic, index))  # type: ignore[call-overload]
        if found is None:
            self.log_manager.check_undamaged(TopicPartition(topic, index))
            raise UnknownTopicOrPartition(f"this broker has no partition {topic}-{index}")
        if found.log.log_directory.failure is not None:
            raise KafkaStorageError(f"the log directory of {topic}-{index} is offline")
        return found

    def find(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition in whatever condition, an offline directory included."""
        return self._partitions.get(topic_partition)

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

    def set_aside_strays(self, known: Container[TopicPartition]) -> None:
        """Put away the logs of partitions that the cluster no longer gives to this broker."""
        found = [log.topic_partition for log in self.log_manager.logs()]
        for topic_partition in (*found, *self.log_manager.damaged):
            if topic_partition not in known:
                logger.warning("%s is not assigned to this broker: its log is set aside", topic_partition)
                self.stop_replica(topic_partition, delete=False)
                self._partitions.pop(topic_partition, None)
                self.log_manager.set_aside_stray(topic_partition)

    def forget_topic(self, topic: str) -> None:
        """A topic is gone for good: so are its figures."""
        self._topic_metrics.pop(topic, None)
        self._metrics.forget(topic=topic)

    def directory_failed(self, directory: LogDirectory) -> list[TopicPartition]:
        """A disk is gone, and its partitions with it: who waits for them is told at once."""
        lost = [key for key, each in self._partitions.items() if each.log.log_directory is directory]
        for key in lost:
            self.fetchers.unfollow(key)
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
        partition = self._partitions.get(key)
        if partition is None or partition.told_high_watermark != partition.log.high_watermark:
            self._complete_produce(key)

    def flushed(self, log: Log) -> None:
        """A group commit is done: what waited for the disk may be acknowledged."""
        partition = self._partitions.get(log.topic_partition)
        if partition is not None:
            partition.maybe_advance_high_watermark()
            self._complete_all(log.topic_partition)
            self.fetchers.flushed(log.topic_partition)

    def _follower_advanced(self, partition: Partition) -> None:
        """A follower's fetch moved the high watermark or the low one."""
        self._complete_all(partition.topic_partition)

    def _follower_appended(self, partition: Partition) -> None:
        """We have copied records: consumers that read from this follower may go on."""
        self.fetch_purgatory.check_and_complete(partition.topic_partition)

    def _isr_changed(self, partition: Partition) -> None:
        self._complete_all(partition.topic_partition)

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

    def _complete_produce(self, key: TopicPartition) -> None:
        partition = self._partitions.get(key)
        if partition is not None:
            partition.told_high_watermark = partition.log.high_watermark
        self.produce_purgatory.check_and_complete(key)

    def _complete_all(self, key: TopicPartition) -> None:
        self._complete_produce(key)
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
        *,
        is_incremental: bool = False,
    ) -> None:
        """Read, and answer at once when nothing should wait, nothing is asked, there is enough,
        or something went wrong; otherwise once there is enough or time is up."""
        reads = self.read(params, asks, is_incremental=is_incremental)
        if params.max_wait_ms <= 0 or not asks or _is_enough(reads, params.min_bytes):
            respond(reads)
            return
        operation = DelayedFetch(self, params, asks, respond, is_incremental=is_incremental)
        self.fetch_purgatory.try_complete_else_watch(operation, [ask.topic_partition for ask in asks])

    def read(
        self,
        params: FetchParams,
        asks: Sequence[FetchPartition],
        *,
        is_first_try: bool = True,
        is_incremental: bool = False,
    ) -> list[PartitionRead]:
        """What can be read now, within `max_bytes` over all partitions together.

        The first partition that has anything gives at least one whole batch, however large, or
        a reader with small limits would never get past a large batch.
        """
        reads: list[PartitionRead] = []
        left_bytes = params.max_bytes
        min_one_batch = True
        is_follower_session = is_incremental and params.is_from_follower
        for ask in asks:
            if is_follower_session and self._is_still_caught_up(ask, params):
                reads.append(NO_NEWS)
                continue
            read = self._read_one(
                params,
                ask,
                min(ask.max_bytes, left_bytes),
                min_one_batch=min_one_batch,
                is_first_try=is_first_try,
            )
            reads.append(read)
            if read.records is not None:
                left_bytes -= read.records.length
                min_one_batch = False
        return reads

    def _is_still_caught_up(self, ask: FetchPartition, params: FetchParams) -> bool:
        """A follower asks again for what is not there yet, and knows the rest: most partitions of
        most fetches between brokers, so this is short."""
        partition = self._partitions.get(ask.topic_partition)
        if (
            partition is None
            or partition.leader_id != self.broker_id
            or partition.leader_epoch != ask.current_leader_epoch
        ):
            return False
        log = partition.log
        if (
            ask.fetch_offset != log.log_end_offset
            or ask.sent_high_watermark != log.high_watermark
            or ask.sent_log_start_offset != log.log_start_offset
            or log.is_closed
        ):
            return False
        follower = partition.followers.get(params.replica_id)  # type: ignore[call-overload]
        if (
            follower is None
            or follower.end_offset != ask.fetch_offset
            or follower.start_offset != ask.log_start_offset
            or follower.broker_epoch != params.broker_epoch
            or params.replica_id not in partition.maximal_isr
        ):
            return False
        follower.still_caught_up(self._clock.monotonic_ms())
        return True

    def _read_one(
        self,
        params: FetchParams,
        ask: FetchPartition,
        max_bytes: int,
        *,
        min_one_batch: bool,
        is_first_try: bool,
    ) -> PartitionRead:
        if not ask.topic_partition.topic:
            return PartitionRead(UnknownTopicId.code)
        try:
            partition = self.partition(*ask.topic_partition)
            if params.is_from_follower:
                return self._read_for_follower(
                    partition, params, ask, max_bytes, min_one_batch=min_one_batch, is_first_try=is_first_try
                )
            if params.rack_id:
                preferred = self._selector.choose(partition, params.rack_id, ask.fetch_offset)
                if preferred != NO_REPLICA:
                    return partition.redirected(ask, params, preferred)
            return partition.read(ask, params, max_bytes, min_one_batch=min_one_batch)
        except KafkaError as error:
            return self._failed_read(ask, error)
        except Exception as error:
            logger.exception("reading %s failed", ask.topic_partition)
            return self._failed_read(ask, UnknownServerError(str(error)))

    def _read_for_follower(
        self,
        partition: Partition,
        params: FetchParams,
        ask: FetchPartition,
        max_bytes: int,
        *,
        min_one_batch: bool,
        is_first_try: bool,
    ) -> PartitionRead:
        """A follower that catches up over its quota is told the offsets, and gets no records."""
        throttle = self._leader_throttle
        is_held = (
            throttle.is_exceeded and params.replica_id not in partition.isr and throttle.applies_to(partition)
        )
        read = partition.read(
            ask,
            params,
            0 if is_held else max_bytes,
            min_one_batch=min_one_batch and not is_held,
            is_first_try=is_first_try,
        )
        if read.records is not None and not throttle.is_unlimited and throttle.applies_to(partition):
            throttle.record(read.records.length)
        return read

    def is_held(self, partition: Partition, params: FetchParams) -> bool:
        """Whether the reader is a follower that has to wait until the quota allows more."""
        throttle = self._leader_throttle
        return (
            params.is_from_follower
            and throttle.is_exceeded
            and params.replica_id not in partition.isr
            and throttle.applies_to(partition)
        )

    def _failed_read(self, ask: FetchPartition, error: KafkaError) -> PartitionRead:
        known = self._topic_metrics.get(ask.topic_partition.topic)
        if known is not None:
            known.failed_fetch.value += 1
        return PartitionRead(error.code)


def _is_enough(reads: list[PartitionRead], min_bytes: int) -> bool:
    total_bytes = 0
    for read in reads:
        if read.error_code or read.diverging_epoch is not None or read.preferred_read_replica != NO_REPLICA:
            return True
        if read.records is not None:
            total_bytes += read.records.length
    return total_bytes >= min_bytes
