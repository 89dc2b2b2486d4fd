"""Configuration of the broker: checked once, read everywhere.

`BrokerConfig.load` takes the text of a properties file (or of `--set`). In the result every value has its
type, is within its bounds and agrees with the others; otherwise INVALID_CONFIG names what to write instead.
So no other part has to check a setting.

Every key is also an attribute, dots turned into underscores: `log.segment.bytes` is
`config.log_segment_bytes`. The attributes declared below are the ones that code reads; a test compares them
with the rows. `listener.name.<listener>.<key>` overrides a key for one listener.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas.config.cross_checks import check_agreement, refuse
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.keys import Update
from barnabas.config.definitions.lookup import broker_key, is_secret
from barnabas.config.definitions.sockets import connection_overrides
from barnabas.config.derived import Derived
from barnabas.config.listeners import of_listener_alone
from barnabas.core.addressing.endpoints import ListenerEndpoint
from barnabas.core.errors import InvalidConfig

_DYNAMIC = {
    name: sys.intern(name.replace(".", "_"))
    for name, row in BROKER_KEYS.items()
    if row.update is not Update.READ_ONLY
}


class BrokerConfig:
    """Settings of one broker, always as they are in force. Components hold this object and read an attribute
    where they need it. Only the repository changes it, when a key changes at run time."""

    broker_id: int
    broker_id_generation_enable: bool
    reserved_broker_max_id: int
    broker_rack: str | None

    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool

    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    socket_connection_setup_timeout_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    connection_failed_authentication_delay_ms: int

    background_threads: int
    metrics_series_max: int
    telemetry_max_bytes: int
    metrics_group_lag_interval_ms: int
    state_change_log_file: str | None
    num_recovery_threads_per_data_dir: int
    queued_max_request_bytes: int
    request_timeout_ms: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    fetch_purgatory_purge_interval_requests: int
    producer_purgatory_purge_interval_requests: int
    delete_records_purgatory_purge_interval_requests: int

    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_backoff_ms: int

    min_insync_replicas: int
    replica_lag_time_max_ms: int
    replica_socket_timeout_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_min_bytes: int
    replica_fetch_backoff_ms: int
    num_replica_fetchers: int
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_selector_class: str | None

    auto_leader_rebalance_enable: bool
    leader_imbalance_per_broker_percentage: int
    leader_imbalance_check_interval_seconds: int
    unclean_leader_election_enable: bool
    controller_socket_timeout_ms: int
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int

    coordination_socket: str | None
    zookeeper_connect: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_auth: str | None
    zookeeper_set_acl: bool
    zookeeper_ssl_client_enable: bool

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_coordinator_rebalance_protocols: Sequence[str]
    group_consumer_max_size: int
    group_consumer_assignors: Sequence[str]
    group_consumer_migration_policy: str
    offset_metadata_max_bytes: int
    quota_window_num: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    offsets_load_buffer_size: int
    offsets_topic_num_partitions: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_commit_timeout_ms: int

    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_load_buffer_size: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_partition_verification_enable: bool
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int

    authorizer_class_name: str

    # Derived from several keys.
    given: Mapping[str, str]
    """The properties of the start, which DescribeConfigs calls static."""
    values: Mapping[str, Any]
    """Values of all keys, defaults filled in."""
    listeners: tuple[ListenerEndpoint, ...]
    advertised_listeners: Mapping[str, ListenerEndpoint]
    """By name. A listener that is missing here is advertised with the address that the client used."""
    inter_broker_listener: ListenerEndpoint
    control_plane_listener_name: str | None
    log_dirs: tuple[Path, ...]
    max_connections_per_ip_overrides: Mapping[str, int]

    def __init__(self, given: Mapping[str, str], values: Mapping[str, Any]) -> None:
        # Interned, like the names in code: the interpreter then finds an attribute without comparing text.
        self.__dict__.update((sys.intern(name.replace(".", "_")), value) for name, value in values.items())
        self.given = given
        self.put(values)
        derived = Derived.of(given, values)
        self.listeners = derived.listeners
        self.advertised_listeners = derived.advertised_listeners
        self.inter_broker_listener = derived.inter_broker_listener
        self.control_plane_listener_name = derived.control_plane_listener_name
        self.log_dirs = derived.log_dirs

    def put(self, values: Mapping[str, Any]) -> None:
        """Put these values into force; only dynamic keys may differ from the previous ones."""
        self.values = values
        self.__dict__.update((attribute, values[name]) for name, attribute in _DYNAMIC.items())
        self.max_connections_per_ip_overrides = connection_overrides(
            values["max.connections.per.ip.overrides"]
        )

    @property
    def given_connection_overrides(self) -> Mapping[str, int]:
        """Overrides in the properties of the start, without those of the store."""
        return connection_overrides(self.given.get("max.connections.per.ip.overrides", ""))

    @classmethod
    def load(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Parse and check `properties`; INVALID_CONFIG names all faults of keys, else all conflicts."""
        values, faults = BROKER_KEYS.defaults(), []
        for name, text in properties.items():
            try:
                values[name] = broker_key(name).parse(text)
            except InvalidConfig as error:
                faults.append(error.message)
        refuse(faults)
        check_agreement(Derived.of(properties, values))
        return cls(dict(properties), values)

    def with_changes(self, changes: Mapping[str, str | None]) -> BrokerConfig:
        """A copy with some keys set, or unset where the new value is None."""
        merged: dict[str, str | None] = {**self.given, **changes}
        return self.load({name: text for name, text in merged.items() if text is not None})

    def internal_replication_factor(self, key: str, live_brokers: int) -> int:
        """Replicas of a new internal topic.

        Kafka's default of three would keep a smaller cluster from ever having groups. So the default means
        "three, or as many as there are brokers", and only a configured value is enforced.
        """
        wanted: int = self.values[key]
        return wanted if key in self.given else max(1, min(wanted, live_brokers))

    def transaction_min_isr(self, replication_factor: int) -> int:
        """`min.insync.replicas` of the transaction topic, created with this replication factor."""
        wanted = self.transaction_state_log_min_isr
        return (
            wanted
            if "transaction.state.log.min.isr" in self.given
            else max(1, min(wanted, replication_factor))
        )

    def max_connections_of(self, listener_name: str) -> int | None:
        """Connection limit of one listener, beside the broker's limit; None if it has none."""
        return of_listener_alone(self.values, listener_name, "max.connections")

    def max_connection_creation_rate_of(self, listener_name: str) -> int | None:
        """Connection rate limit of one listener, beside the broker's limit; None if it has none."""
        return of_listener_alone(self.values, listener_name, "max.connection.creation.rate")

    @property
    def send_buffer_bytes(self) -> int:
        """SO_SNDBUF: -1 leaves it to the operating system, which adapts better than Kafka's default. A
        configured size is used."""
        return self.values[key] if (key := "socket.send.buffer.bytes") in self.given else -1

    @property
    def receive_buffer_bytes(self) -> int:
        """SO_RCVBUF, chosen as the send buffer."""
        return self.values[key] if (key := "socket.receive.buffer.bytes") in self.given else -1

    @property
    def owns_store(self) -> bool:
        """Whether the coordination store is embedded: no other broker can join."""
        return not self.zookeeper_connect and not self.coordination_socket

    @property
    def zookeeper_connection_timeout_ms(self) -> int:
        wanted: int | None = self.values["zookeeper.connection.timeout.ms"]
        return self.zookeeper_session_timeout_ms if wanted is None else wanted

    def __repr__(self) -> str:
        shown = {name: text for name, text in self.given.items() if not is_secret(name)}
        return f"BrokerConfig({shown})"
