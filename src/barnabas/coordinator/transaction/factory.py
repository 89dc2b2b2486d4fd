"""Constructs the transaction coordinator from its configuration and parts."""

from __future__ import annotations

import logging

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.coordinator.runtime.runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.shard_context import RuntimeSettings
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from barnabas.coordinator.transaction.markers.cluster import ClusterMarkers
from barnabas.coordinator.transaction.shard import TransactionShard
from barnabas.coordinator.transaction.state.rules import TakeProducerId
from barnabas.coordinator.transaction.state.settings import TransactionSettings
from barnabas.coordinator.transaction.state.transaction_memory import transaction_memory_account
from barnabas.core.clock import Clock
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import Scheduler
from barnabas.purgatory.timer import Timer
from barnabas.replication.replica_manager import ReplicaManager


def make_transaction_coordinator(
    settings: TransactionSettings,
    runtime_settings: RuntimeSettings,
    num_partitions: int,
    replicas: ReplicaManager,
    metadata: MetadataCache,
    markers: ClusterMarkers,
    take_producer_id: TakeProducerId,
    *,
    clock: Clock,
    scheduler: Scheduler,
    timer: Timer,
    metrics: Metrics,
) -> TransactionCoordinator:
    """Transaction coordinator that is notified of every partition of its topic which this broker leads from
    now on. Its topic will be created with `num_partitions`, if it does not exist."""

    limited_log = RateLimitedLogger(logging.getLogger(__package__), clock)
    account = transaction_memory_account(metrics)

    def make_shard(timers: ShardTimers) -> TransactionShard:
        return TransactionShard(settings, timers, clock, markers, take_producer_id, limited_log, account)

    runtime = CoordinatorRuntime(
        TRANSACTION_TOPIC,
        CoordinatorLog(replicas),
        make_shard,
        clock=clock,
        scheduler=scheduler,
        timer=timer,
        settings=runtime_settings,
        metrics=metrics,
    )
    replicas.local.notify_leadership(runtime)

    def partition_count() -> int | None:
        """Number of partitions of the topic, or of its creation while there is none. A topic that is led here
        exists, even if the metadata do not have it yet, and may have another number."""
        topic = metadata.topic(TRANSACTION_TOPIC)
        if topic is not None:
            return len(topic.partitions)
        return None if runtime.partitions() else num_partitions

    return TransactionCoordinator(runtime, settings, partition_count)
