"""Settings of one topic as its logs read them.

A topic's value is its own override, else the broker's value of the synonym. Of several synonyms the finest
unit wins: `log.retention.ms` before `.minutes` before `.hours`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.config.definitions.topics import TOPIC_KEYS, broker_default
from barnabas.core.errors import InvalidConfig
from barnabas.core.integers import LONG_MAX
from barnabas.core.limits import INDEX_INTERVAL_BYTES_MAX
from barnabas.records.validation import ValidationSettings


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Values of one topic. Attributes are the keys, with dots as underscores."""

    barnabas_table: str | None
    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_format_version: str
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_difference_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    overridden: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys with an override of the topic."""

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def indexed_every_bytes(self) -> int:
        """Distance between two index entries."""
        return min(self.index_interval_bytes, INDEX_INTERVAL_BYTES_MAX)

    @property
    def roll_after_ms(self) -> int:
        """The age at which a segment is rolled. Compaction needs closed segments in time."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.is_compacted else self.segment_ms

    def validation_settings(self) -> ValidationSettings:
        """Settings for the validation of a produced batch."""
        difference_ms = self.message_timestamp_difference_max_ms
        before_ms, after_ms = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        level = {
            "gzip": None if self.compression_gzip_level == -1 else self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }.get(self.compression_type)
        return ValidationSettings(
            max_message_bytes=self.max_message_bytes,
            timestamp_type=self.message_timestamp_type,
            timestamp_before_max_ms=difference_ms if before_ms == LONG_MAX else before_ms,
            timestamp_after_max_ms=difference_ms if after_ms == LONG_MAX else after_ms,
            compression_type=self.compression_type,
            compression_level=level,
            compacted=self.is_compacted,
        )


def resolve(overrides: Mapping[str, str], broker: Mapping[str, Any] | None = None) -> LogConfig:
    """Settings of a topic with these overrides on a broker with these (parsed) values."""
    values = TOPIC_KEYS.defaults()
    if broker is not None:
        values = {name: broker_default(row, broker) for name, row in TOPIC_KEYS.items()}
    values.update(TOPIC_KEYS.parse(overrides))
    check_together(values)
    attributes: dict[str, Any] = {
        name.replace(".", "_"): tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
    }
    return LogConfig(**attributes, overridden=frozenset(overrides))


def check_together(values: Mapping[str, Any]) -> None:
    """Raise INVALID_CONFIG for values that are each valid and conflict with each other."""
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise InvalidConfig("min.compaction.lag.ms must not be greater than max.compaction.lag.ms")
