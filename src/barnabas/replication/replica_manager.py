"""All partitions of this broker, and the way every write and read of them takes.

Producers, group commits and transaction markers all find the partition here that they append to; consumers
and followers all read through here. A request is tried at once; one that must wait goes to a purgatory, and
what can end its waiting looks for it there (`leader.delayed_requests`):

- a *produce* with acks=all has been appended to its partitions (`partition`) and waits in `await_acks` until
  their high watermarks have passed its records (`leader.delayed_produce`). A follower's fetch moves them
  (`leader.replica_reader.update_follower`), and thereby answers the producer;
- a *fetch* is read at once (`leader.replica_reader`) and waits for `min_bytes` (`leader.delayed_fetch`);
- a *deletion of records* has been made by its partitions and waits in `await_deletion` until every replica
  has moved the start of its log (`leader.delayed_delete_records`).

The manager owns the table of partitions, what waits for them, and the reader. It also carries out the
controller's orders (`controller_orders`, `local_replicas`), follows other brokers
(`follower.fetcher_manager`) and keeps the ISR (`leader.isr`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.errors import StaleBrokerEpoch
from barnabas.core.ids import BrokerId
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Background, Cancellable, Scheduler
from barnabas.purgatory.timer import Timer
from barnabas.replication.controller_orders import ControllerOrders
from barnabas.replication.fetching import FetchParams, PartitionFetch, PartitionRead, is_enough
from barnabas.replication.follower.connection import OpenConnection
from barnabas.replication.follower.fetcher_driver import FetcherDriver
from barnabas.replication.follower.fetcher_manager import FetcherManager
from barnabas.replication.follower.replica_fetcher import ReplicaFetcher
from barnabas.replication.leader.delayed_delete_records import DelayedDeleteRecords, PendingDeletion
from barnabas.replication.leader.delayed_fetch import DelayedFetch, DelayedFollowerFetch
from barnabas.replication.leader.delayed_produce import DelayedProduce, PendingAck
from barnabas.replication.leader.delayed_requests import Defer, DelayedRequests
from barnabas.replication.leader.fetch_session import FetchSession
from barnabas.replication.leader.isr import IsrKeeper, IsrStore
from barnabas.replication.leader.lease import LeadershipLease
from barnabas.replication.leader.remote_replica import NO_BROKER_EPOCH
from barnabas.replication.leader.replica_reader import ReplicaReader
from barnabas.replication.local_replicas import LocalReplicas
from barnabas.replication.log_dir_mover import LogDirMover
from barnabas.replication.partition import Partition, PartitionHost
from barnabas.replication.replica_metrics import register_replica_metrics
from barnabas.replication.replica_table import ReplicaTable
from barnabas.replication.throttle import ReplicationThrottle
from barnabas.storage.log.log import Log
from barnabas.storage.log_manager import LogManager


def _at_once(work: Callable[[], None]) -> None:
    work()


def _all_live(broker_id: int) -> bool:  # noqa: ARG001 - the shape of a liveness test
    return True


class ReplicaManager:
    def __init__(
        self,
        broker_id: BrokerId,
        log_manager: LogManager,
        clock: Clock,
        timer: Timer,
        metrics: Metrics,
        *,
        scheduler: Scheduler,
        background: Background,
        isr_store: IsrStore | None = None,
        connect: OpenConnection | None = None,
        metadata: MetadataCache | None = None,
        lease: LeadershipLease | None = None,
        broker_epoch: Callable[[], int] = lambda: NO_BROKER_EPOCH,
        settings: BrokerConfig | None = None,
        defer: Defer = _at_once,
    ) -> None:
        """`connect` opens a connection to another broker, and `isr_store` writes down who is in sync:
        both belong to a cluster, as do `metadata` (which brokers live, and in which racks) and
        `lease`. `defer` runs something when the present turn of the loop is over."""
        self.broker_id = broker_id
        self.log_manager = log_manager
        self.settings = settings = settings if settings is not None else BrokerConfig.load({})
        self._clock = clock
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._scheduler = scheduler
        self._background = background
        self._timers: list[Cancellable] = []
        self.table = ReplicaTable(metrics, log_manager.check_undamaged)
        self.partition = self.table.partition
        self.find = self.table.find
        self.delayed = DelayedRequests(self.table, timer, metrics, settings, defer)
        self.isr = IsrKeeper(isr_store, scheduler, self.delayed, metrics)
        self.reader = ReplicaReader(broker_id, self.table, self.delayed, self.isr, clock, settings, metadata)
        self.fetchers = FetcherManager(self._make_fetcher, lambda: settings.num_replica_fetchers)
        self.follower_throttle = ReplicationThrottle(
            clock,
            lambda: settings.follower_replication_throttled_rate,
            lambda partition: partition.log.config.follower_replication_throttled_replicas,
        )
        host = PartitionHost(
            broker_id,
            clock,
            settings,
            lease,
            is_live=_all_live if metadata is None else metadata.is_live,
            keeps_isr=isr_store is not None,
        )
        self.local = LocalReplicas(self.table, host, log_manager, self.delayed, self.fetchers)
        self._orders = ControllerOrders(broker_id, self.table, self.local, self.fetchers, defer)
        self.become_leader_or_follower = self._orders.lead_and_follow
        self.stop_replicas = self._orders.stop
        self.mover = LogDirMover(log_manager, self.table.partitions, scheduler, background)
        log_manager.on_flushed.append(self.flushed)
        register_replica_metrics(metrics, self.table.partitions, log_manager, self.fetchers)

    def start(self) -> None:
        """Begin what happens from time to time, in a cluster."""
        period_ms = self.settings.replica_lag_time_max_ms / 2
        self._timers.append(
            self._scheduler.every(
                period_ms, lambda: self.isr.shrink_all(list(self.table.partitions.values()))
            )
        )

    def close(self) -> None:
        """Carry out no more orders, follow nobody any more, and write no more ISRs."""
        self._orders.close()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.isr.close()
        self.mover.close()
        self.fetchers.close()

    def _make_fetcher(self, source: BrokerId) -> FetcherDriver:
        assert self._connect is not None, "a broker that follows others must be able to reach them"
        fetcher = ReplicaFetcher(
            source,
            self.broker_id,
            log_manager=self.log_manager,
            clock=self._clock,
            settings=self.settings,
            throttle=self.follower_throttle,
            broker_epoch=self._broker_epoch,
            appended=self._appended_as_follower,
        )
        return FetcherDriver(
            fetcher, self._connect, self._clock, self._scheduler, self._background, self.settings
        )

    # Requests that may have to wait

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
        self.delayed.produces.try_complete_else_watch(operation, keys)

    def await_deletion(
        self,
        timeout_ms: float,
        pending: Sequence[PendingDeletion],
        respond: Callable[[], None],
    ) -> None:
        """Call `respond` when every replica has forgotten the records, or time is up."""
        operation = DelayedDeleteRecords(timeout_ms, pending, respond)
        keys = [deletion.partition.topic_partition for deletion in pending]
        for key in keys:
            self.delayed.subscriptions.mark_changed(key)  # the followers must hear where the log starts now
        self.delayed.deletions.try_complete_else_watch(operation, keys)

    def answer_or_wait(
        self,
        params: FetchParams,
        fetches: Sequence[PartitionFetch],
        reads: list[PartitionRead],
        respond: Callable[[list[PartitionRead]], None],
    ) -> None:
        """Of what was read: answer at once when nothing should wait, nothing is asked, there is enough, or
        something went wrong; otherwise read again, and answer once there is enough or time is up."""
        if params.max_wait_ms <= 0 or not fetches or is_enough(reads, params.min_bytes):
            respond(reads)
            return
        operation = DelayedFetch(self.reader, params, fetches, respond)
        self.delayed.fetches.try_complete_else_watch(operation, [fetch.topic_partition for fetch in fetches])

    def fetch_for_follower(
        self,
        params: FetchParams,
        session: FetchSession,
        respond: Callable[[list[PartitionFetch], list[PartitionRead]], None],
    ) -> None:
        """The same for a session of a follower, of which only what may have changed is looked at."""
        reader = self.reader
        reader.sweep(session)
        fetches = reader.due(params, session)
        reads = reader.read(params, fetches)
        if params.max_wait_ms <= 0 or is_enough(reads, params.min_bytes):
            respond(fetches, reads)
            return
        operation = DelayedFollowerFetch(reader, params, session, respond)
        self.delayed.fetches.try_complete_else_watch(operation, (session,))

    # What the controller orders

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        """Refuse orders of a former controller, and orders for a former life of this broker."""
        if NO_BROKER_EPOCH < broker_epoch < self._broker_epoch():
            raise StaleBrokerEpoch(f"the broker epoch is {self._broker_epoch()}, not {broker_epoch}")
        self._orders.check_controller_epoch(controller_epoch)

    # What happened to a partition

    def flushed(self, log: Log) -> None:
        """A group commit is done: what waited for the disk may be acknowledged."""
        partition = self.find(log.topic_partition)
        if partition is not None:
            partition.maybe_advance_high_watermark()
            self.delayed.complete_all(log.topic_partition)
            self.fetchers.flushed(log.topic_partition)

    def _appended_as_follower(self, partition: Partition) -> None:
        """We have copied records: consumers that read from this follower may go on."""
        self.delayed.complete_fetches(partition.topic_partition)
