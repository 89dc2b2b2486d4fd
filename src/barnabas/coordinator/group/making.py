"""The group coordinator, put together from its settings and parts."""

from __future__ import annotations

import logging

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.coordinator.asking import Start
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from barnabas.coordinator.group.registry import GroupRegistry
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.stored_topics import FindTopics
from barnabas.coordinator.log import CoordinatorLog
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.shard_context import RuntimeSettings
from barnabas.coordinator.timers import ShardTimers
from barnabas.core.clock import Clock
from barnabas.core.complaints import Complaints
from barnabas.core.ids import Randomness
from barnabas.core.metrics import Metrics
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
    """The coordinator, told of every partition of its topic that this broker leads from now on. Its topic
    will be made with `num_partitions`, if there is none."""

    complaints = Complaints(logging.getLogger(__package__), clock)

    def make_shard(timers: ShardTimers) -> GroupShard:
        registry = GroupRegistry(settings, timers, clock, randomness, metadata, complaints)
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
    replicas.local.tell_leadership(runtime)

    def partition_count() -> int:
        topic = metadata.topic(OFFSETS_TOPIC)
        return num_partitions if topic is None else len(topic.partitions)

    coordinator = GroupCoordinator(runtime, settings, partition_count)
    metadata.on_topic_removed.append(coordinator.topic_deleted)
    return coordinator
