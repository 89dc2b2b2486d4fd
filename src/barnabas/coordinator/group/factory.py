"""Constructs the group coordinator from its configuration and parts."""

from __future__ import annotations

import logging

from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from barnabas.coordinator.group.offsets.deleted_topics import FindTopics
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.state.group_memory import group_memory_account
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.group.state.settings import GroupSettings
from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.coordinator.runtime.peers import Start
from barnabas.coordinator.runtime.runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.shard_context import RuntimeSettings
from barnabas.coordinator.runtime.timers import ShardTimers
from barnabas.core.clock import Clock
from barnabas.core.ids import Randomness
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import Scheduler
from barnabas.purgatory.timer import Timer
from barnabas.replication.replica_manager import ReplicaManager


def make_group_coordinator(
    settings: GroupSettings,
    runtime_settings: RuntimeSettings,
    num_partitions: int,
    replicas: ReplicaManager,
    metadata: MetadataCache,
    find_topics: FindTopics,
    start: Start,
    *,
    clock: Clock,
    scheduler: Scheduler,
    timer: Timer,
    randomness: Randomness,
    metrics: Metrics,
) -> GroupCoordinator:
    """Group coordinator that is notified of every partition of its topic which this broker leads from now on.
    Its topic will be created with `num_partitions`, if it does not exist."""

    limited_log = RateLimitedLogger(logging.getLogger(__package__), clock)
    account = group_memory_account(metrics)

    def make_shard(timers: ShardTimers) -> GroupShard:
        registry = GroupRegistry(settings, timers, clock, randomness, metadata, limited_log, account)
        return GroupShard(registry, find_topics, start)

    runtime = CoordinatorRuntime(
        OFFSETS_TOPIC,
        CoordinatorLog(replicas),
        make_shard,
        clock=clock,
        scheduler=scheduler,
        timer=timer,
        settings=runtime_settings,
        metrics=metrics,
    )
    replicas.local.notify_leadership(runtime)
    metrics.gauge(
        "kafka_group_coordinator_groups",
        "Groups coordinated here.",
        lambda: sum(len(shard.groups) for _, shard in runtime.active_shards()),
    )
    metrics.gauge(
        "kafka_group_coordinator_offsets",
        "Committed offsets kept here.",
        lambda: sum(shard.offsets.count for _, shard in runtime.active_shards()),
    )

    def partition_count() -> int:
        topic = metadata.topic(OFFSETS_TOPIC)
        return num_partitions if topic is None else len(topic.partitions)

    coordinator = GroupCoordinator(runtime, settings, partition_count)
    metadata.on_topic_removed.append(coordinator.topic_deleted)
    return coordinator
