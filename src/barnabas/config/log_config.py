"""The settings of one topic's logs: rows, and the typed object that the log reads.

A topic's value is its own override, else the broker's value of the synonym (of several
synonyms the finest unit wins: `log.retention.ms` before `.minutes` before `.hours`), else
the default of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.config.keys import Between, ConfigType, Definition, Key, at_least, between, one_of
from barnabas.core.errors import InvalidConfig
from barnabas.records.validation import ValidationSettings

LONG_MAX: Final = (1 << 63) - 1
HOUR_MS: Final = 60 * 60 * 1000
DAY_MS: Final = 24 * HOUR_MS

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST


@dataclass(frozen=True, slots=True)
class GzipLevel:
    """1 to 9, or -1 for the library's own choice."""

    def __call__(self, value: Any) -> None:
        if value != -1:
            Between(1, 9)(value)

    def describe(self) -> str:
        return "[1, 9] or -1"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`partition:broker` pairs, or `*` for all."""

    def __call__(self, value: Any) -> None:
        if list(value) == ["*"]:
            return
        for pair in value:
            partition, _, broker = pair.partition(":")
            if not (partition.isdigit() and broker.isdigit()):
                raise ValueError("must be * or a list of partition:broker pairs")

    def describe(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],... or *"


TOPIC_KEYS: Final = Definition(
    (
        Key("cleanup.policy", _LIST, ["delete"], one_of("compact", "delete"), synonym="log.cleanup.policy",
            doc="What happens to old segments: they are deleted, compacted by key, or both."),
        Key("compression.gzip.level", _INT, -1, GzipLevel(), synonym="compression.gzip.level",
            doc="The level when compression.type is gzip."),
        Key("compression.lz4.level", _INT, 9, between(1, 17), synonym="compression.lz4.level",
            doc="The level when compression.type is lz4."),
        Key("compression.type", _STRING, "producer",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), synonym="compression.type",
            doc="The codec on disk; 'producer' keeps what the producer chose."),
        Key("compression.zstd.level", _INT, 3, between(-131_072, 22), synonym="compression.zstd.level",
            doc="The level when compression.type is zstd."),
        Key("delete.retention.ms", _LONG, DAY_MS, at_least(0), synonym="log.cleaner.delete.retention.ms",
            doc="How long tombstones of a compacted topic stay readable."),
        Key("file.delete.delay.ms", _LONG, 60_000, at_least(0), synonym="log.segment.delete.delay.ms",
            doc="How long a file marked for deletion stays on disk."),
        Key("flush.messages", _LONG, LONG_MAX, at_least(1), synonym="log.flush.interval.messages",
            doc="Records that may be acknowledged without having been forced to disk."),
        Key("flush.ms", _LONG, LONG_MAX, at_least(0), synonym="log.flush.interval.ms",
            doc="How long records may stay without being forced to disk."),
        Key("follower.replication.throttled.replicas", _LIST, [], ThrottledReplicas(),
            doc="Replicas whose replication is throttled on the follower's side."),
        Key("index.interval.bytes", _INT, 4096, at_least(0), synonym="log.index.interval.bytes",
            doc="Bytes of log between two index entries."),
        Key("leader.replication.throttled.replicas", _LIST, [], ThrottledReplicas(),
            doc="Replicas whose replication is throttled on the leader's side."),
        Key("max.compaction.lag.ms", _LONG, LONG_MAX, at_least(1),
            synonym="log.cleaner.max.compaction.lag.ms",
            doc="The longest that a record may stay uncompacted."),
        Key("max.message.bytes", _INT, 1_048_588, at_least(0), synonym="message.max.bytes",
            doc="The largest batch that is accepted, as it is on the wire."),
        Key("message.downconversion.enable", _BOOLEAN, True, synonym="log.message.downconversion.enable",
            doc="Whether old fetch versions get records converted to the old formats."),
        Key("message.format.version", _STRING, "3.0-IV1", synonym="log.message.format.version",
            doc="Accepted and ignored: batches are always written in format 2."),
        Key("message.timestamp.after.max.ms", _LONG, LONG_MAX, at_least(0),
            synonym="log.message.timestamp.after.max.ms",
            doc="How far a record's timestamp may lie in the future."),
        Key("message.timestamp.before.max.ms", _LONG, LONG_MAX, at_least(0),
            synonym="log.message.timestamp.before.max.ms",
            doc="How far a record's timestamp may lie in the past."),
        Key("message.timestamp.difference.max.ms", _LONG, LONG_MAX, at_least(0),
            synonym="log.message.timestamp.difference.max.ms",
            doc="The older name for both limits at once; it counts where they are not set."),
        Key("message.timestamp.type", _STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
            synonym="log.message.timestamp.type",
            doc="Whether records keep the producer's timestamp or get the broker's."),
        Key("min.cleanable.dirty.ratio", _DOUBLE, 0.5, between(0, 1),
            synonym="log.cleaner.min.cleanable.ratio",
            doc="The uncompacted share of the log from which compaction runs."),
        Key("min.compaction.lag.ms", _LONG, 0, at_least(0), synonym="log.cleaner.min.compaction.lag.ms",
            doc="The shortest that a record stays uncompacted."),
        Key("min.insync.replicas", _INT, 1, at_least(1), synonym="min.insync.replicas",
            doc="Replicas that must have a record before acks=all is answered."),
        Key("preallocate", _BOOLEAN, False, synonym="log.preallocate",
            doc="Accepted and ignored: files grow as they are written."),
        Key("retention.bytes", _LONG, -1, synonym="log.retention.bytes",
            doc="The size of a partition beyond which old segments are deleted; -1 for no limit."),
        Key("retention.ms", _LONG, 7 * DAY_MS, at_least(-1), synonym="log.retention.ms",
            doc="The age beyond which old segments are deleted; -1 for no limit."),
        Key("segment.bytes", _INT, 1 << 30, at_least(14), synonym="log.segment.bytes",
            doc="A segment is rolled before it would grow past this size."),
        Key("segment.index.bytes", _INT, 10 * 1024 * 1024, at_least(4), synonym="log.index.size.max.bytes",
            doc="A segment is rolled when an index of it has reached this size."),
        Key("segment.jitter.ms", _LONG, 0, at_least(0), synonym="log.roll.jitter.ms",
            doc="At most this much is taken off segment.ms at random, so that logs do not roll together."),
        Key("segment.ms", _LONG, 7 * DAY_MS, at_least(1), synonym="log.roll.ms",
            doc="A segment is rolled when its first record is this old."),
        Key("unclean.leader.election.enable", _BOOLEAN, False, synonym="unclean.leader.election.enable",
            doc="Whether a replica outside the ISR may lead when no other is left, losing data."),
    )
)  # fmt: skip
"""Every topic key of Apache Kafka, but for those of tiered storage."""

COARSER_SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS)),
    "segment.ms": (("log.roll.hours", HOUR_MS),),
    "segment.jitter.ms": (("log.roll.jitter.hours", HOUR_MS),),
    "flush.ms": (("log.flush.scheduler.interval.ms", 1),),
}
"""Broker keys that supply a topic's default when the synonym proper has no value, and their unit."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The values of one topic. Attributes are the keys, with dots as underscores."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    message_format_version: str = "3.0-IV1"
    message_timestamp_after_max_ms: int = LONG_MAX
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_difference_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False
    overridden: frozenset[str] = field(default=frozenset(), compare=False)
    """The keys that the topic itself sets."""

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_after_ms(self) -> int:
        """The age at which a segment is rolled: compaction must see records in time."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.is_compacted else self.segment_ms

    def validation_settings(self) -> ValidationSettings:
        """What the validation of a produced batch needs to know."""
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
    """The settings of a topic with these overrides on a broker with these (parsed) values."""
    values = {name: broker_default(row, broker or {}) for name, row in TOPIC_KEYS.items()}
    values.update(TOPIC_KEYS.parse(overrides))
    check_together(values)
    attributes: dict[str, Any] = {
        name.replace(".", "_"): tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
    }
    return LogConfig(**attributes, overridden=frozenset(overrides))


def broker_default(row: Key, broker: Mapping[str, Any]) -> Any:
    """The value that a topic without an override has."""
    if row.synonym is not None and broker.get(row.synonym) is not None:
        return broker[row.synonym]
    for name, unit in COARSER_SYNONYMS.get(row.name, ()):
        value = broker.get(name)
        if value is not None:
            return value * unit if value >= 0 else value
    return row.default


def check_together(values: Mapping[str, Any]) -> None:
    """Raise INVALID_CONFIG for values that are valid each and nonsense together."""
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise InvalidConfig("min.compaction.lag.ms must not be greater than max.compaction.lag.ms")
