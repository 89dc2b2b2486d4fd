"""What a topic has that sets nothing: the broker's settings under the topics' names.

For historical reasons Kafka names most settings twice, `segment.bytes` for a topic and
`log.segment.bytes` for the broker. The table is Kafka's; where a setting exists in several
units the first broker key that is set wins, and its value is brought to milliseconds.
"""

from __future__ import annotations

from typing import Any

from barnabas.node.broker_config import BrokerConfig
from barnabas.node.config_keys.words import HOUR_MS, LONG_MAX, MINUTE_MS

SYNONYMS: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.downconversion.enable": ("log.message.downconversion.enable",),
    "message.format.version": ("log.message.format.version",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.difference.max.ms": ("log.message.timestamp.difference.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""Of each topic key the broker keys that stand behind it, the one that wins first."""


def topic_defaults(config: BrokerConfig) -> dict[str, Any]:
    """The value of every topic key as this broker's settings have it."""
    values = {key: _first_set(config, names) for key, names in SYNONYMS.items()}
    values["retention.ms"] = config.log_retention_ms
    difference_ms = values["message.timestamp.difference.max.ms"]
    for bound in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if difference_ms != LONG_MAX and values[bound] == LONG_MAX:
            values[bound] = difference_ms
    return values


def _first_set(config: BrokerConfig, names: tuple[str, ...]) -> Any:
    for name in names:
        value = config.values[name]
        if value is not None:
            return value * _unit_ms(name) if name.endswith((".hours", ".minutes")) else value
    return None


def _unit_ms(name: str) -> int:
    return HOUR_MS if name.endswith(".hours") else MINUTE_MS
