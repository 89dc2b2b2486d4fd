"""Settings of a producer: where they come from, and faults that the constructor names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.manual_time import ManualClock

from barnabas.client import Producer
from barnabas.client.core.metadata import Partition, Topic
from barnabas.core.errors import InvalidConfig
from barnabas.core.ids import ZERO_UUID


async def test_settings_come_from_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\nlinger.ms=1\nbatch.size=1\nacks=1\n")
    producer = Producer(
        {"batch.size": "7"}, file=file, environment={"BARNABAS_ACKS": "0"}, linger_ms=9, client_id="mine"
    )
    settings = producer.settings
    assert (settings.linger_ms, settings.batch_size, settings.acks) == (9, 7, "0")
    assert str(settings.bootstrap[0]) == "127.0.0.1:1"
    assert settings.client_id == "mine"
    assert [str(each) for each in Producer(["a:1", "b:2"]).settings.bootstrap] == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("keyword", "value", "words"),
    [
        ("linger_msec", 1, r"linger\.ms"),
        ("partitioner_class", "random", r"partitioner\.class"),
        ("key_serializer", "avro", r"key\.serializer"),
        ("compression_type", "brotli", "zstd"),
    ],
)
async def test_a_wrong_setting_is_named(keyword: str, value: object, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        Producer("127.0.0.1:1", **{keyword: value})  # type: ignore[arg-type]


async def test_settings_of_topics_are_in_force() -> None:
    clock = ManualClock()
    settings = {"partitioner_ignore_keys": True, "partitioner_adaptive_partitioning_enable": False}
    producer = Producer("127.0.0.1:1", clock=clock, metadata_max_idle_ms=5_000, **settings)
    metadata = producer._cluster.metadata
    rows = tuple(Partition(index, 1, 0, (), (), (), 0) for index in range(10))
    metadata.topics["orders"] = Topic("orders", ZERO_UUID, False, rows)
    target = producer._appending._target("orders")
    assert len({target.choose(b"%d" % number) for number in range(20)}) == 1, "no key decides"
    assert target.sticky is not None
    assert target.sticky._adaptive is False
    producer._appending._want("orders")
    assert metadata.topics_to_ask(clock.monotonic_ms() + 4_999) == ["orders"]
    assert metadata.topics_to_ask(clock.monotonic_ms() + 5_000) == []


async def test_a_codec_without_its_package_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InvalidConfig, match="zstandard is not installed"):
        Producer("127.0.0.1:1", compression_type="zstd")
