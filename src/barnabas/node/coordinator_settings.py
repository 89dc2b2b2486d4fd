"""How the coordinators' logs are written and read, and what their topics are made with."""

from __future__ import annotations

from barnabas.config.broker_config import BrokerConfig
from barnabas.controller.internal_topics import InternalTopic
from barnabas.coordinator.shard_context import RuntimeSettings
from barnabas.records.compression import CODECS


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
