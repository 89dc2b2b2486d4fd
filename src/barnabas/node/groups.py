"""The group coordinator, put together from the broker's configuration and parts."""

from __future__ import annotations

from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.controller.configs import ConfigRepository
from barnabas.controller.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from barnabas.coordinator.group.migration import MigrationPolicy
from barnabas.coordinator.group.registry import GroupRegistry
from barnabas.coordinator.group.settings import ConsumerTimes, GroupSettings
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.topics import FindTopics
from barnabas.coordinator.runtime import CoordinatorRuntime, RuntimeSettings
from barnabas.coordinator.timers import ShardTimers
from barnabas.core.clock import Clock
from barnabas.core.ids import Randomness
from barnabas.core.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.handlers.internal_topics import InternalTopic
from barnabas.node.broker_config import BrokerConfig
from barnabas.node.config_keys.words import MINUTE_MS
from barnabas.node.coordinator_log import ReplicatedLog
from barnabas.purgatory.timer import Timer
from barnabas.records.compression import CODECS
from barnabas.replication.replica_manager import ReplicaManager


def group_settings(config: BrokerConfig, configs: ConfigRepository) -> GroupSettings:
    values = config.values
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        protocols=frozenset(values["group.coordinator.rebalance.protocols"]),
        consumer_times=lambda group: ConsumerTimes(
            configs.group_value(group, SESSION_TIMEOUT), configs.group_value(group, HEARTBEAT_INTERVAL)
        ),
        consumer_max_size=config.group_consumer_max_size,
        consumer_assignors=tuple(_assignor_name(name) for name in values["group.consumer.assignors"]),
        migration_policy=MigrationPolicy(values["group.consumer.migration.policy"]),
    )


def _assignor_name(name: str) -> str:
    """`org.apache.kafka.coordinator.group.assignor.UniformAssignor` is our `uniform`."""
    return name.rsplit(".", 1)[-1].removesuffix("Assignor").lower()


def make_group_coordinator(
    config: BrokerConfig,
    configs: ConfigRepository,
    replicas: ReplicaManager,
    metadata: MetadataCache,
    find_topics: FindTopics,
    *,
    clock: Clock,
    scheduler: Scheduler,
    timer: Timer,
    randomness: Randomness,
    metrics: Metrics,
) -> GroupCoordinator:
    """The coordinator, told of every partition of its topic that this broker leads from now on."""
    settings = group_settings(config, configs)

    def make_shard(timers: ShardTimers) -> GroupShard:
        return GroupShard(GroupRegistry(settings, timers, clock, randomness, metadata), find_topics)

    runtime = CoordinatorRuntime(
        OFFSETS_TOPIC,
        ReplicatedLog(replicas),
        make_shard,
        clock=clock,
        scheduler=scheduler,
        timer=timer,
        settings=RuntimeSettings(
            load_buffer_bytes=config.offsets_load_buffer_size,
            write_timeout_ms=config.offsets_commit_timeout_ms,
            codec=CODECS[config.offsets_topic_compression_codec],
        ),
        metrics=metrics,
    )
    replicas.tell_leadership(runtime)

    def partition_count() -> int:
        topic = metadata.topic(OFFSETS_TOPIC)
        return config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    coordinator = GroupCoordinator(runtime, settings, partition_count)
    metadata.on_topic_removed.append(coordinator.topic_deleted)
    return coordinator


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
