"""A topic's settings: its own, the broker's, the default."""

from __future__ import annotations

import dataclasses

import pytest
from tests.support.settings import log_config

from barnabas.config.definitions.shorthand import HOUR_MS
from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.config.log_config import LogConfig, resolve
from barnabas.core.errors import InvalidConfig
from barnabas.core.integers import LONG_MAX


def test_rows_and_attributes_agree() -> None:
    attributes = {field.name for field in dataclasses.fields(LogConfig)} - {"overridden"}
    assert attributes == {name.replace(".", "_") for name in TOPIC_KEYS}
    for name, row in TOPIC_KEYS.items():
        assert getattr(resolve({}), name.replace(".", "_")) == row.default


def test_a_topics_own_value_wins_over_the_brokers() -> None:
    broker = {"log.segment.bytes": 100, "min.insync.replicas": 2}
    config = resolve({"segment.bytes": "200"}, broker)
    assert (config.segment_bytes, config.min_insync_replicas) == (200, 2)
    assert config.overridden == {"segment.bytes"}


def test_the_finest_unit_wins() -> None:
    hours = {"log.retention.hours": 2}
    assert resolve({}, hours).retention_ms == 2 * HOUR_MS
    assert resolve({}, {**hours, "log.retention.minutes": 3}).retention_ms == 180_000
    assert resolve({}, {**hours, "log.retention.minutes": 3, "log.retention.ms": 4}).retention_ms == 4
    assert resolve({}, {"log.retention.hours": -1}).retention_ms == -1
    assert resolve({}, {"log.roll.hours": 1}).segment_ms == HOUR_MS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "13"),
        ("cleanup.policy", "shred"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("min.insync.replicas", "0"),
        ("retention.ms", "-2"),
        ("leader.replication.throttled.replicas", "1-2"),
        ("no.such.key", "1"),
    ],
)
def test_nonsense_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig):
        resolve({name: text})


def test_values_must_fit_together() -> None:
    with pytest.raises(InvalidConfig):
        resolve({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_what_validation_is_told() -> None:
    settings = resolve(
        {
            "cleanup.policy": "compact,delete",
            "compression.type": "zstd",
            "compression.zstd.level": "7",
            "message.timestamp.difference.max.ms": "50",
            "message.timestamp.after.max.ms": "20",
        }
    ).validation_settings()
    assert settings.compacted
    assert (settings.compression_type, settings.compression_level) == ("zstd", 7)
    assert (settings.timestamp_before_max_ms, settings.timestamp_after_max_ms) == (50, 20)
    assert log_config().validation_settings().timestamp_after_max_ms == LONG_MAX
