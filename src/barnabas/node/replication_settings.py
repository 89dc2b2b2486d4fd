"""The settings of replication, out of the broker's configuration."""

from __future__ import annotations

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.repository import ConfigRepository
from barnabas.replication.settings import ReplicationSettings


def replication_settings(config: BrokerConfig) -> ReplicationSettings:
    return ReplicationSettings(
        replica_lag_time_max_ms=config.replica_lag_time_max_ms,
        replica_fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
        replica_fetch_min_bytes=config.replica_fetch_min_bytes,
        replica_fetch_max_bytes=config.replica_fetch_max_bytes,
        replica_fetch_response_max_bytes=config.replica_fetch_response_max_bytes,
        replica_fetch_backoff_ms=config.replica_fetch_backoff_ms,
        replica_socket_timeout_ms=config.replica_socket_timeout_ms,
        num_replica_fetchers=config.num_replica_fetchers,
        replica_selector_class=config.replica_selector_class,
        leader_throttled_rate=config.leader_replication_throttled_rate,
        follower_throttled_rate=config.follower_replication_throttled_rate,
        fetch_purgatory_purge_interval_requests=config.values["fetch.purgatory.purge.interval.requests"],
        producer_purgatory_purge_interval_requests=config.values[
            "producer.purgatory.purge.interval.requests"
        ],
        delete_records_purgatory_purge_interval_requests=config.values[
            "delete.records.purgatory.purge.interval.requests"
        ],
    )


def follow_replication_settings(settings: ReplicationSettings, configs: ConfigRepository) -> None:
    """Those that may change while the broker runs."""
    settings.num_replica_fetchers = configs.broker_value("num.replica.fetchers")
    settings.leader_throttled_rate = configs.broker_value("leader.replication.throttled.rate")
    settings.follower_throttled_rate = configs.broker_value("follower.replication.throttled.rate")
