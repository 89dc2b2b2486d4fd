"""The broker's settings that bear on replication; names are those of the configuration keys."""

from __future__ import annotations

from dataclasses import dataclass

UNTHROTTLED = 2**63 - 1
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(slots=True)
class ReplicationSettings:
    """Read at each use, so that a dynamic change takes effect by assignment."""

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1024 * 1024
    replica_fetch_response_max_bytes: int = 10 * 1024 * 1024
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    num_replica_fetchers: int = 1
    replica_selector_class: str | None = None
    leader_throttled_rate: int = UNTHROTTLED
    """`leader.replication.throttled.rate`, bytes a second"""
    follower_throttled_rate: int = UNTHROTTLED
    """`follower.replication.throttled.rate`, bytes a second"""
    fetch_purgatory_purge_interval_requests: int = 1_000
    producer_purgatory_purge_interval_requests: int = 1_000
    delete_records_purgatory_purge_interval_requests: int = 1
