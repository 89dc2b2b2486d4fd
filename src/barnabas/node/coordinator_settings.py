"""What the coordinators are run by, and what their topics are made with: from the broker's configuration."""

from __future__ import annotations

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.group_config import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from barnabas.config.repository import ConfigRepository
from barnabas.config.rows.words import MINUTE_MS
from barnabas.controller.internal_topics import InternalTopic
from barnabas.coordinator.group.migration import MigrationPolicy
from barnabas.coordinator.group.settings import ConsumerTimes, GroupSettings
from barnabas.coordinator.runtime import RuntimeSettings
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.records.compression import CODECS


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


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
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
