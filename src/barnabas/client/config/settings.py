"""Settings in force, with types: an attribute for each key, named like it with `_` for each dot.

    settings = ProducerSettings.load({"bootstrap.servers": "127.0.0.1:9092"}, keywords={"linger_ms": 5})
    settings.linger_ms, settings.bootstrap, settings.security

`bootstrap` has the addresses, parsed. `security` has the settings of TLS and SASL, which
`security.secured()` turns into a TLS context and a login.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from barnabas.client.config.admin_keys import ADMIN_KEYS
from barnabas.client.config.common import SECURITY
from barnabas.client.config.consumer_keys import CONSUMER_KEYS
from barnabas.client.config.producer_keys import PRODUCER_KEYS
from barnabas.client.config.sources import gather
from barnabas.client.security.settings import SecuritySettings
from barnabas.config.definitions.keys import Definition
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig
from barnabas.core.ids import ACKS_ALL


class ClientSettings:
    """Settings that all clients have."""

    definition: ClassVar[Definition]

    bootstrap: tuple[Endpoint, ...]
    security: SecuritySettings

    client_id: str
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        for name, value in values.items():
            setattr(self, name.replace(".", "_"), value)
        self.bootstrap = _endpoints(values["bootstrap.servers"])
        secured = {key.name: values[key.name] for key in SECURITY}
        self.security = SecuritySettings.parse(
            {name: text for name, text in secured.items() if text is not None}
        )
        self._check()

    @classmethod
    def load(
        cls,
        properties: Mapping[str, Any] | None = None,
        *,
        file: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
        keywords: Mapping[str, Any] | None = None,
    ) -> Self:
        """Settings from all sources (`sources`). INVALID_CONFIG names the fault."""
        return cls(gather(cls.definition, properties, file=file, environment=environment, keywords=keywords))

    @classmethod
    def given(
        cls,
        config: str | Sequence[str] | Mapping[str, Any] | None,
        *,
        file: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
        keywords: Mapping[str, Any] | None = None,
    ) -> Self:
        """Settings as a client's constructor takes them: first the bootstrap servers, or the properties."""
        if config is None or isinstance(config, Mapping):
            return cls.load(config, file=file, environment=environment, keywords=keywords)
        servers = {"bootstrap.servers": config if isinstance(config, str) else list(config)}
        return cls.load(servers, file=file, environment=environment, keywords=keywords)

    def _check(self) -> None:
        """Check settings against each other."""


class ProducerSettings(ClientSettings):
    definition = PRODUCER_KEYS

    acks: str
    enable_idempotence: bool
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    delivery_timeout_ms: int
    retries: int
    max_in_flight_requests_per_connection: int
    compression_type: str
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    transactional_id: str | None
    transaction_timeout_ms: int
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_class: Any
    metadata_max_idle_ms: int
    key_serializer: Any
    value_serializer: Any

    @property
    def required_acks(self) -> int:
        return ACKS_ALL if self.acks == "all" else int(self.acks)

    @property
    def compression_level(self) -> int | None:
        level: int | None = self.values.get(f"compression.{self.compression_type}.level")
        return level

    def _check(self) -> None:
        fits = self.required_acks == ACKS_ALL and self.retries > 0
        fits = fits and self.max_in_flight_requests_per_connection <= IDEMPOTENT_IN_FLIGHT_MAX
        wanted = self.values["enable.idempotence"]
        if wanted and not fits:
            raise InvalidConfig(
                "enable.idempotence needs acks=all, retries above 0 and at most"
                f" {IDEMPOTENT_IN_FLIGHT_MAX} max.in.flight.requests.per.connection"
            )
        self.enable_idempotence = fits if wanted is None else wanted
        if self.transactional_id is not None and not self.enable_idempotence:
            raise InvalidConfig("transactional.id needs enable.idempotence, and with it acks=all")
        if self.transactional_id == "":
            raise InvalidConfig("transactional.id is empty: leave it out or name the producer")
        least_ms = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < least_ms:
            raise InvalidConfig(
                f"delivery.timeout.ms is {self.delivery_timeout_ms}, but linger.ms and request.timeout.ms"
                f" together are {least_ms}: raise it, or lower request.timeout.ms"
            )


IDEMPOTENT_IN_FLIGHT_MAX = 5
"""A broker remembers this many batches of a producer and a partition."""


class ConsumerSettings(ClientSettings):
    definition = CONSUMER_KEYS

    group_id: str | None
    group_instance_id: str | None
    group_protocol: str | None
    group_remote_assignor: str | None
    partition_assignment_strategy: list[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: str
    default_api_timeout_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    fetch_buffer_bytes: int
    check_crcs: bool
    client_rack: str
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    key_deserializer: Any
    value_deserializer: Any


class AdminSettings(ClientSettings):
    definition = ADMIN_KEYS

    default_api_timeout_ms: int
    retries: int


def _endpoints(addresses: list[str] | None) -> tuple[Endpoint, ...]:
    if not addresses:
        raise InvalidConfig("bootstrap.servers is missing: name at least one broker, as HOST:PORT")
    try:
        return tuple(dict.fromkeys(map(Endpoint.parse, addresses)))
    except ValueError as error:
        raise InvalidConfig(f"bootstrap.servers: {error}") from None
