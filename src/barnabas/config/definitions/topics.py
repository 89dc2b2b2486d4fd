"""Keys of a topic. Most are a broker's key under another name: that key supplies the type, the valid values,
and the value of a topic without an override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.keys import ConfigType, Definition, Key
from barnabas.config.definitions.shorthand import HOUR_MS, MINUTE_MS


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


@dataclass(frozen=True, slots=True)
class TableLocation:
    """A table that pipelines keep: its format and its place, and options of the pipeline after `?`."""

    def __call__(self, value: Any) -> None:
        format_name, _, rest = value.partition(":")
        place = rest.partition("?")[0]
        if format_name not in TABLE_FORMATS or not place:
            raise ValueError("must be delta:PATH or iceberg:PATH, with ?OPTION=VALUE&... or without")
        if not place.startswith("/") and "://" not in place:
            raise ValueError(f"{place} must be an absolute path, or a URL")

    def describe(self) -> str:
        return "delta:PATH or iceberg:PATH, with ?OPTION=VALUE&... or without"


def _supplied(name: str, broker_key: str, doc: str, *coarser: tuple[str, int]) -> Key:
    """`coarser` are older names of the broker's key in larger units, the finest first."""
    key = BROKER_KEYS[broker_key].supplying(name, doc, *coarser)
    return replace(key, default=broker_default(key, _BROKER_DEFAULTS))


_BROKER_DEFAULTS = BROKER_KEYS.defaults()


def broker_default(row: Key, broker: Mapping[str, Any]) -> Any:
    """The value that a topic without an override has, on a broker with these values."""
    if row.synonym is None:
        return row.default
    for name, unit in ((row.synonym, 1), *row.coarser):
        value = broker.get(name)
        if value is not None:
            return value * unit if unit != 1 and value >= 0 else value
    return row.default


TABLE_FORMATS: Final = ("delta", "iceberg")
TABLE: Final = "barnabas.table"

TOPIC_KEYS: Final = Definition((
    Key("barnabas.table", ConfigType.STRING, None, TableLocation(), is_shown_unset=False,
        doc="A Delta or Iceberg table that the pipeline service fills from the topic."),
    _supplied("cleanup.policy", "log.cleanup.policy",
        "Treatment of old segments: delete, compact by key, or both."),
    _supplied("compression.gzip.level", "compression.gzip.level",
        "The level when compression.type is gzip."),
    _supplied("compression.lz4.level", "compression.lz4.level",
        "The level when compression.type is lz4."),
    _supplied("compression.type", "compression.type",
        "The codec on disk; 'producer' keeps the producer's."),
    _supplied("compression.zstd.level", "compression.zstd.level",
        "The level when compression.type is zstd."),
    _supplied("delete.retention.ms", "log.cleaner.delete.retention.ms",
        "Time for which tombstones of a compacted topic stay readable."),
    _supplied("file.delete.delay.ms", "log.segment.delete.delay.ms",
        "Time for which a file marked for deletion stays on disk."),
    _supplied("flush.messages", "log.flush.interval.messages",
        "Records that may be acknowledged before a flush to disk."),
    _supplied("flush.ms", "log.flush.interval.ms",
        "The longest that a record stays unflushed.",
        ("log.flush.scheduler.interval.ms", 1)),
    Key("follower.replication.throttled.replicas", ConfigType.LIST, (), ThrottledReplicas(),
        doc="Replicas whose replication is throttled on the follower's side."),
    _supplied("index.interval.bytes", "log.index.interval.bytes",
        "Bytes of log between two index entries."),
    Key("leader.replication.throttled.replicas", ConfigType.LIST, (), ThrottledReplicas(),
        doc="Replicas whose replication is throttled on the leader's side."),
    _supplied("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms",
        "The longest that a record may stay uncompacted."),
    _supplied("max.message.bytes", "message.max.bytes",
        "The largest batch that is accepted, as it is on the wire."),
    _supplied("message.downconversion.enable", "log.message.downconversion.enable",
        "Whether old fetch versions get records converted to the old formats."),
    _supplied("message.format.version", "log.message.format.version",
        "Accepted and ignored: batches are always written in format 2."),
    _supplied("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms",
        "The largest distance of a record's timestamp into the future."),
    _supplied("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms",
        "The largest age of a record's timestamp."),
    _supplied("message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms",
        "The older name for both limits at once; used where neither of them is set."),
    _supplied("message.timestamp.type", "log.message.timestamp.type",
        "Whether records keep the producer's timestamp or get the broker's."),
    _supplied("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio",
        "The uncompacted share of the log from which compaction runs."),
    _supplied("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms",
        "The shortest that a record stays uncompacted."),
    _supplied("min.insync.replicas", "min.insync.replicas",
        "Replicas that must have a record before acks=all is answered."),
    _supplied("preallocate", "log.preallocate",
        "Accepted and ignored: files grow as they are written."),
    _supplied("retention.bytes", "log.retention.bytes",
        "The size of a partition beyond which old segments are deleted; -1 for no limit."),
    _supplied("retention.ms", "log.retention.ms",
        "The age beyond which old segments are deleted; -1 for no limit.",
        ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    _supplied("segment.bytes", "log.segment.bytes",
        "A segment is rolled before it would grow past this size."),
    _supplied("segment.index.bytes", "log.index.size.max.bytes",
        "A segment is rolled when an index of it has reached this size."),
    _supplied("segment.jitter.ms", "log.roll.jitter.ms",
        "At most this much is taken off segment.ms at random, so that logs do not roll together.",
        ("log.roll.jitter.hours", HOUR_MS)),
    _supplied("segment.ms", "log.roll.ms",
        "A segment is rolled when its first record is this old.",
        ("log.roll.hours", HOUR_MS)),
    _supplied("unclean.leader.election.enable", "unclean.leader.election.enable",
        "Whether a replica outside the ISR may lead when no other is left, losing data."),
))  # fmt: skip
"""Every topic key of Apache Kafka, except those of tiered storage, and `barnabas.table`."""
