"""Replica manager: all partitions of this broker, and every write and read of them.

Producers, group commits and transaction markers find the partition to append to here. Consumers and followers
read through here. A request is tried at once. One that must wait goes to a purgatory, where the completing
event finds it (`leader.delayed_requests`):

- A *produce* with acks=all has been appended to its partitions (`table.partition`) and waits in `await_acks`
  until their high watermarks pass its records (`leader.delayed_produce`). A follower's fetch moves them
  (`leader.replica_reader.update_follower`), and so completes the produce.
- A *fetch* is read at once (`leader.replica_reader`) and waits for `min_bytes` (`leader.delayed_fetch`).
- A *DeleteRecords* has moved its partitions' log start and waits in `await_deletion` until every replica has
  moved its own (`leader.delayed_delete_records`).

The manager owns the table of partitions, the purgatories and the reader. It also carries out the controller's
requests (`controller_orders`, `local_replicas`), follows other brokers (`follower.fetcher_manager`) and keeps
the ISR (`leader.isr_changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.log_config import LogConfig
from barnabas.core.clock import Clock
from barnabas.core.errors import StaleBrokerEpoch
from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Background, Cancellable, Scheduler
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.purgatory.timer import Timer
from barnabas.replication.controller_orders import ControllerOrders, Failed
from barnabas.replication.follower.connection import OpenConnection
from barnabas.replication.follower.fetcher_manager import FetcherManager
from barnabas.replication.leader.delayed_delete_records import DelayedDeleteRecords, PendingDeletion
from barnabas.replication.leader.delayed_fetch import DelayedFetch, DelayedFollowerFetch
from barnabas.replication.leader.delayed_produce import DelayedProduce, PendingAck
from barnabas.replication.leader.delayed_requests import Defer, DelayedRequests
from barnabas.replication.leader.fetch_session import FetchSession
from barnabas.replication.leader.isr_changes import IsrKeeper, IsrStore
from barnabas.replication.leader.replica_reader import ReplicaReader
from barnabas.replication.local_replicas import LocalReplicas
from barnabas.replication.log_dir_mover import LogDirMover
from barnabas.replication.partition.fetching import FetchParams, PartitionFetch, PartitionRead, is_enough
from barnabas.replication.partition.lease import LeadershipLease
from barnabas.replication.partition.partition import Partition, PartitionHost
from barnabas.replication.partition.remote_replica import NO_BROKER_EPOCH
from barnabas.replication.partition.replica_table import ReplicaTable
from barnabas.replication.partition.throttle import ReplicationThrottle
from barnabas.replication.replica_metrics import register_replica_metrics
from barnabas.storage.log.log import Log
from barnabas.storage.log_manager import LogManager

if TYPE_CHECKING:  # a broker without followed partitions starts without fetchers
    from barnabas.replication.follower.fetcher_driver import FetcherDriver


def _at_once(work: Callable[[], None]) -> None:
    work()


def _all_live(broker_id: int) -> bool:  # noqa: ARG001 - the signature of a liveness test
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
        config: BrokerConfig,
        isr_store: IsrStore | None = None,
        connect: OpenConnection | None = None,
        metadata: MetadataCache | None = None,
        lease: LeadershipLease | None = None,
        broker_epoch: Callable[[], int] = lambda: NO_BROKER_EPOCH,
        defer: Defer = _at_once,
    ) -> None:
        """In a cluster, `connect` opens connections to other brokers, `isr_store` stores the ISR, and
        `metadata` knows the live brokers and their racks. `lease` belongs to a cluster too. `defer` runs a
        function at the end of the current turn of the loop."""
        self.broker_id = broker_id
        self.log_manager = log_manager
        self.config = config
        self._clock = clock
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._scheduler = scheduler
        self._background = background
        self._timers: list[Cancellable] = []
        self.table = ReplicaTable(metrics, log_manager.check_undamaged)
        self.delayed = DelayedRequests(self.table, timer, metrics, config, defer)
        self.isr = IsrKeeper(isr_store, scheduler, self.delayed, metrics)
        self.reader = ReplicaReader(broker_id, self.table, self.delayed, self.isr, clock, config, metadata)
        self.fetchers = FetcherManager(self._make_fetcher, lambda: config.num_replica_fetchers)
        self.follower_throttle = ReplicationThrottle(
            clock,
            lambda: config.follower_replication_throttled_rate,
            lambda partition: partition.log.config.follower_replication_throttled_replicas,
        )
        host = PartitionHost(
            broker_id,
            clock,
            config,
            lease,
            is_live=_all_live if metadata is None else metadata.is_live,
            keeps_isr=isr_store is not None,
        )
        self.local = LocalReplicas(self.table, host, log_manager, self.delayed, self.fetchers)
        self._orders = ControllerOrders(broker_id, self.table, self.local, self.fetchers, defer)
        self.mover = LogDirMover(log_manager, self.table.partitions, scheduler, background)
        log_manager.on_flushed.append(self.flushed)
        register_replica_metrics(metrics, self.table.partitions, log_manager, self.fetchers)

    def partition(self, topic: str, index: int) -> Partition:
        """The partition, if it is on this broker and online."""
        return self.table.partition(topic, index)

    def find(self, topic_partition: TopicPartition) -> Partition | None:
        """The partition in any condition, also in an offline directory."""
        return self.table.find(topic_partition)

    def start(self) -> None:
        """Start the periodic work of a cluster."""
        period_ms = self.config.replica_lag_time_max_ms / 2
        self._timers.append(
            self._scheduler.every(
                period_ms, lambda: self.isr.shrink_all(list(self.table.partitions.values()))
            )
        )

    def close(self) -> None:
        """Stop the controller's requests, the fetchers and the ISR writes."""
        self._orders.close()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.isr.close()
        self.mover.close()
        self.fetchers.close()

    def _make_fetcher(self, source: BrokerId) -> FetcherDriver:
        # Imported here: see `node.main.LATER`.
        from barnabas.replication.follower.fetcher_driver import FetcherDriver  # noqa: PLC0415
        from barnabas.replication.follower.replica_fetcher import ReplicaFetcher  # noqa: PLC0415

        assert self._connect is not None, "a broker with followed partitions needs `connect`"
        fetcher = ReplicaFetcher(
            source,
            self.broker_id,
            log_manager=self.log_manager,
            clock=self._clock,
            config=self.config,
            throttle=self.follower_throttle,
            broker_epoch=self._broker_epoch,
            appended=self._appended_as_follower,
        )
        return FetcherDriver(
            fetcher, self._connect, self._clock, self._scheduler, self._background, self.config
        )

    # --- requests that may wait ---

    def await_acks(
        self,
        timeout_ms: float,
        required_acks: int,
        pending: Sequence[PendingAck],
        respond: Callable[[], None],
    ) -> None:
        """Call `respond` once every append of `pending` is as safe as `required_acks` asks, or at the
        timeout."""
        operation = DelayedProduce(timeout_ms, required_acks, pending, respond)
        keys = [ack.partition.topic_partition for ack in pending]
        self.delayed.produces.try_complete_else_watch(operation, keys)

    def await_deletion(
        self,
        timeout_ms: float,
        pending: Sequence[PendingDeletion],
        respond: Callable[[], None],
    ) -> None:
        """Call `respond` once every replica has deleted the records, or at the timeout."""
        operation = DelayedDeleteRecords(timeout_ms, pending, respond)
        keys = [deletion.partition.topic_partition for deletion in pending]
        for key in keys:
            self.delayed.subscriptions.mark_changed(key)  # followers need the new log start
        self.delayed.deletions.try_complete_else_watch(operation, keys)

    def answer_or_wait(
        self,
        params: FetchParams,
        fetches: Sequence[PartitionFetch],
        reads: list[PartitionRead],
        respond: Callable[[list[PartitionRead]], None],
    ) -> None:
        """Respond at once if the fetch must not wait, is empty, has enough, or failed. Otherwise read again,
        and respond once there is enough or at the timeout."""
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
        """Read for a follower's session; only partitions that may have changed are looked at."""
        reader = self.reader
        reader.sweep(session)
        fetches = reader.due(params, session)
        reads = reader.read(params, fetches)
        if params.max_wait_ms <= 0 or is_enough(reads, params.min_bytes):
            respond(fetches, reads)
            return
        operation = DelayedFollowerFetch(reader, params, session, respond)
        self.delayed.fetches.try_complete_else_watch(operation, (session,))

    # --- requests of the controller ---

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        """Refuse a replaced controller, and requests for an earlier registration of this broker."""
        if NO_BROKER_EPOCH < broker_epoch < self._broker_epoch():
            raise StaleBrokerEpoch(
                f"the request is for broker epoch {broker_epoch}, the current one is {self._broker_epoch()}"
            )
        self._orders.check_controller_epoch(controller_epoch)

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, done: Callable[[LeaderAndIsrResponse], None], failed: Failed
    ) -> None:
        """Carry out LeaderAndIsr; the response has the form of v5 and later."""
        self._orders.lead_and_follow(request, done, failed)

    def stop_replicas(
        self, request: StopReplicaRequest, done: Callable[[StopReplicaResponse], None], failed: Failed
    ) -> None:
        """Carry out StopReplica; the response has the form of the newest version."""
        self._orders.stop(request, done, failed)

    # --- events of a partition ---

    def flushed(self, log: Log) -> None:
        """Acknowledge what waited for the disk, after a group commit."""
        partition = self.find(log.topic_partition)
        if partition is not None:
            partition.maybe_advance_high_watermark()
            self.delayed.complete_all(log.topic_partition)
            self.fetchers.flushed(log.topic_partition)

    def update_log_config(self, topic: str, config: LogConfig) -> None:
        """Apply a topic's new configuration. A lower `min.insync.replicas` may commit records at once."""
        self.table.update_log_config(topic, config)
        for topic_partition, partition in self.table.partitions.items():
            if topic_partition.topic == topic and partition.maybe_advance_high_watermark():
                self.delayed.complete_committed(topic_partition)

    def _appended_as_follower(self, partition: Partition) -> None:
        """Complete fetches of consumers that read from this follower, after it copied records."""
        self.delayed.complete_fetches(partition.topic_partition)
