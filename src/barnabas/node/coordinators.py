"""Group and transaction coordinators of a broker, with their internal topics."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from barnabas.administration.internal_topics import InternalTopic
from barnabas.administration.producer_ids import ProducerIds
from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.stores.deleted_partitions import DeletedPartitions
from barnabas.cluster.stores.topics import allocate_producer_ids
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.group.factory import make_group_coordinator
from barnabas.coordinator.group.lags import GroupLags
from barnabas.coordinator.group.offsets.remote_end_offsets import RemoteEndOffsets
from barnabas.coordinator.group.state.settings import GroupSettings
from barnabas.coordinator.runtime.shard_context import RuntimeSettings
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.factory import make_transaction_coordinator
from barnabas.coordinator.transaction.markers.cluster import ClusterMarkers
from barnabas.coordinator.transaction.markers.local import LocalMarkers
from barnabas.coordinator.transaction.state.settings import TransactionSettings
from barnabas.core.clock import Clock
from barnabas.core.ids import BrokerId, Randomness
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.core.tasks import Tasks
from barnabas.node.membership.peers import Peers
from barnabas.purgatory.timer import Timer
from barnabas.records.compression import CODECS
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.requests.time_slicing import Slices

logger = logging.getLogger(__name__)


class Coordinators(NamedTuple):
    """Group and transaction coordinators, with the parts that they share with the handlers."""

    groups: GroupCoordinator
    producer_ids: ProducerIds
    markers: LocalMarkers
    transactions: TransactionCoordinator


@asynccontextmanager
async def open_coordinators(
    broker_id: BrokerId,
    config: BrokerConfig,
    znodes: Coordination,
    configs: ConfigRepository,
    metadata: MetadataCache,
    peers: Peers,
    replicas: ReplicaManager,
    *,
    clock: Clock,
    scheduler: Scheduler,
    timer: Timer,
    randomness: Randomness,
    metrics: Metrics,
    tasks: Tasks,
) -> AsyncIterator[Coordinators]:
    deleted = DeletedPartitions(znodes, is_deletion_enabled=config.delete_topic_enable)
    async with AsyncExitStack() as exits:
        groups = make_group_coordinator(
            GroupSettings.of(config, configs),
            group_runtime_settings(config),
            config.offsets_topic_num_partitions,
            replicas,
            metadata,
            deleted.find_topics,
            tasks.start,
            clock=clock,
            scheduler=scheduler,
            timer=timer,
            randomness=randomness,
            metrics=metrics,
        )
        exits.callback(groups.runtime.close)
        producer_ids = ProducerIds(lambda: allocate_producer_ids(znodes, broker_id))
        exits.push_async_callback(producer_ids.close)
        markers = LocalMarkers(replicas, groups.runtime, clock, tasks.start)
        transactions = make_transaction_coordinator(
            TransactionSettings.of(config),
            transaction_runtime_settings(config),
            config.transaction_state_log_num_partitions,
            replicas,
            metadata,
            ClusterMarkers(broker_id, markers, metadata, peers, tasks.start, deleted.find),
            producer_ids.take_now,
            clock=clock,
            scheduler=scheduler,
            timer=timer,
            metrics=metrics,
        )
        exits.callback(transactions.runtime.close)
        yield Coordinators(groups, producer_ids, markers, transactions)


def offsets_topic(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        config.offsets_topic_num_partitions,
        lambda live: config.internal_replication_factor("offsets.topic.replication.factor", live),
        lambda _: {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
    )


def group_runtime_settings(config: BrokerConfig) -> RuntimeSettings:
    return RuntimeSettings(
        load_buffer_bytes=config.offsets_load_buffer_size,
        write_timeout_ms=config.offsets_commit_timeout_ms,
        codec=CODECS[config.offsets_topic_compression_codec],
    )


def transaction_runtime_settings(config: BrokerConfig) -> RuntimeSettings:
    return RuntimeSettings(load_buffer_bytes=config.transaction_state_log_load_buffer_size)


def transaction_topic(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        config.transaction_state_log_num_partitions,
        lambda live: config.internal_replication_factor("transaction.state.log.replication.factor", live),
        lambda replication_factor: {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(config.transaction_min_isr(replication_factor)),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        },
    )


def show_group_lags(
    metrics: Metrics,
    groups: GroupCoordinator,
    metadata: MetadataCache,
    peers: Peers,
    replicas: ReplicaManager,
    clock: Clock,
    scheduler: Scheduler,
    tasks: Tasks,
) -> None:
    """Show the lag of consumer groups on the metrics page."""
    config = replicas.config
    remote = RemoteEndOffsets(metadata, peers, clock, tasks.start)
    lags = GroupLags(groups.runtime, metadata, replicas.table.find, remote, clock)
    lags.register(metrics)
    metadata.on_topic_removed.append(lags.forget_topic)

    slices = Slices(clock)

    def failed(error: Exception) -> None:
        logger.warning("cannot list the remote partitions of group lags: %r", error)

    def refresh() -> None:
        if not slices.waiting:
            work = lags.remote_partitions(config.metrics_series_max)
            slices.run(work, remote.refresh, failed, waits=lambda: None)

    scheduler.every(config.metrics_group_lag_interval_ms, refresh)
