"""The transaction coordinator, put together from its settings and parts."""

from __future__ import annotations

import logging

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.coordinator.log import CoordinatorLog
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.shard_context import RuntimeSettings
from barnabas.coordinator.timers import ShardTimers
from barnabas.coordinator.transaction.cluster_markers import ClusterMarkers
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from barnabas.coordinator.transaction.rules import TakeProducerId
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.shard import TransactionShard
from barnabas.core.clock import Clock
from barnabas.core.complaints import Complaints
from barnabas.core.metrics import Metrics
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
    """The coordinator, told of every partition of its topic that this broker leads from now on. Its topic
    will be made with `num_partitions`, if there is none."""

    complaints = Complaints(logging.getLogger(__package__), clock)

    def make_shard(timers: ShardTimers) -> TransactionShard:
        return TransactionShard(settings, timers, clock, markers, take_producer_id, complaints)

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
    replicas.local.tell_leadership(runtime)

    def partition_count() -> int | None:
        """What the topic will be made with, as long as there is none. One that is led here exists, whether
        the controller has told of it or not, and may have been made with another number."""
        topic = metadata.topic(TRANSACTION_TOPIC)
        if topic is not None:
            return len(topic.partitions)
        return None if runtime.partitions() else num_partitions

    return TransactionCoordinator(runtime, settings, partition_count)
