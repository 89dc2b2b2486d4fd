"""Every kind of topic setting that Apache Kafka left in a directory, and every record, survive adoption.

The records are years old: one setting that is lost, and retention deletes them. An hour has twelve retention
checks; here they follow each other quickly, and a topic whose records expire at once shows that each took
place.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.protocol.config_numbers import ResourceType
from tests.peers.kafka import KafkaBroker
from tests.support import wire
from tests.support.broker import BarnabasBroker, Broker, running
from tests.support.fixtures import create_topic

pytestmark = pytest.mark.java

OLD_MS = 1_577_836_800_000
"""2020-01-01."""
RECORDS = 30
RETENTION_CHECKS = 12
SHORT_CHECKS = {
    "log.retention.check.interval.ms": 100,
    "log.initial.task.delay.ms": 0,
    "log.cleaner.backoff.ms": 100,
}
KEPT = {"retention.ms": "-1"}
SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact,delete",
    "compression.gzip.level": "3",
    "compression.lz4.level": "5",
    "compression.type": "zstd",
    "compression.zstd.level": "4",
    "delete.retention.ms": "1000000",
    "file.delete.delay.ms": "2000",
    "flush.messages": "7",
    "flush.ms": "1000000",
    "follower.replication.throttled.replicas": "0:1",
    "index.interval.bytes": "2048",
    "leader.replication.throttled.replicas": "*",
    "max.compaction.lag.ms": "900000000",
    "max.message.bytes": "2000000",
    "message.timestamp.after.max.ms": "3600001",
    "message.timestamp.before.max.ms": "9223372036854775806",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "5000",
    "min.insync.replicas": "1",
    "preallocate": "true",
    "retention.bytes": "1000000000",
    "retention.ms": "-1",
    "segment.bytes": "1048576",
    "segment.index.bytes": "1000000",
    "segment.jitter.ms": "5",
    "segment.ms": "3600000",
    "unclean.leader.election.enable": "true",
}
TOPICS: Mapping[str, Mapping[str, str]] = {
    **{f"with-{key}": {**KEPT, "segment.bytes": "1048576", key: value} for key, value in SETTINGS.items()},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"},
    "inheriting": {},
}
OFFSETS = "__consumer_offsets"


async def described(admin: TopicAdmin, topic: str) -> dict[str, str | None]:
    settings = await admin.describe_configs(ResourceType.TOPIC, topic)
    return {each.name: each.value for each in settings if each.source == "topic"}


async def all_described(bootstrap: str) -> dict[str, dict[str, str | None]]:
    async with ClusterClient(
        [Endpoint.parse(bootstrap)], clock=SystemClock(), randomness=random.Random(1)
    ) as cluster:
        admin = TopicAdmin(cluster)
        return {topic: await described(admin, topic) for topic in (*TOPICS, OFFSETS)}


async def keep_by_default(bootstrap: str) -> None:
    """Inherited setting of `inheriting`: of all brokers, made at run time."""
    async with ClusterClient(
        [Endpoint.parse(bootstrap)], clock=SystemClock(), randomness=random.Random(1)
    ) as cluster:
        await TopicAdmin(cluster).alter_configs(ResourceType.BROKER, "", changes={"log.retention.ms": "-1"})


def batch(number: int) -> bytes:
    record = wire.record(b"%d" % number, key=b"key-%d" % number)
    return wire.batch(records=record, timestamp_ms=OLD_MS + number)


def write_topics(broker: Broker) -> None:
    for topic, configs in TOPICS.items():
        create_topic(broker, topic, configs=dict(configs))
    with wire.WireConnection(broker.host, broker.port) as connection:
        for topic in TOPICS:
            for number in range(RECORDS):
                assert connection.produce(topic, batch(number)) == (0, number)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("inheriting", 0, 7)], asynchronous=False)
    consumer.close()


def committed(broker: Broker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    try:
        return int(consumer.committed([TopicPartition("inheriting", 0)], timeout=60)[0].offset)
    finally:
        consumer.close()


def read_all(bootstrap: str) -> dict[str, list[tuple[int, bytes | None]]]:
    """Offsets and values of every topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in TOPICS])
        found: dict[str, list[tuple[int, bytes | None]]] = {topic: [] for topic in TOPICS}
        ended: set[str] = set()
        while ended != TOPICS.keys():
            message = consumer.poll(60)
            assert message is not None, f"nothing more, and no end of {TOPICS.keys() - ended}"
            topic, error = message.topic(), message.error()
            assert topic is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(topic)
            else:
                found[topic].append((message.offset() or 0, message.value()))
        return found
    finally:
        consumer.close()


def outlive_retention_checks(broker: Broker, count: int) -> None:
    """Return when retention has looked at every log that often: a pass looks at all of them."""
    name = f"expiring-{time.monotonic_ns()}"
    create_topic(broker, name, configs={"retention.ms": "1"})
    with wire.WireConnection(broker.host, broker.port) as connection:
        for _ in range(count):
            end = connection.produce(name, wire.batch([b"x"], timestamp_ms=OLD_MS))[1] + 1
            deadline = time.monotonic() + 60
            while connection.list_offset(name, wire.EARLIEST)[1] < end:
                assert time.monotonic() < deadline, "retention deletes nothing, so it proves nothing"
                time.sleep(0.02)


def assert_nothing_lost(broker: Broker) -> None:
    for topic, found in read_all(broker.bootstrap).items():
        assert found == [(number, b"%d" % number) for number in range(RECORDS)], topic
    assert committed(broker) == 7


@pytest.fixture(scope="module", params=["stopped cleanly", "killed"])
def kafkas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, dict[str, str | None]]]:
    """A directory that Kafka has left, and the settings of its topics."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), settings={"offsets.topic.num.partitions": 2})
    with running(broker):
        asyncio.run(keep_by_default(broker.bootstrap))
        write_topics(broker)
        settings = asyncio.run(all_described(broker.bootstrap))
        if request.param == "killed":
            broker.kill()
    return broker.data_directory, settings


def test_every_setting_and_record_survives_an_hour_of_retention_checks(
    kafkas: tuple[Path, dict[str, dict[str, str | None]]], tmp_path: Path
) -> None:
    directory, settings = kafkas
    shutil.copytree(directory, tmp_path / "data")
    broker = BarnabasBroker(tmp_path / "data", settings=SHORT_CHECKS)
    for _ in ("adopted", "and started again"):
        with running(broker):
            outlive_retention_checks(broker, RETENTION_CHECKS)
            assert asyncio.run(all_described(broker.bootstrap)) == settings
            assert_nothing_lost(broker)


def test_nothing_is_deleted_where_the_settings_are_gone(
    kafkas: tuple[Path, dict[str, dict[str, str | None]]], tmp_path: Path
) -> None:
    directory, _ = kafkas
    shutil.copytree(directory, tmp_path / "data", ignore=shutil.ignore_patterns("__cluster_metadata-0"))
    broker = BarnabasBroker(tmp_path / "data", settings=SHORT_CHECKS)
    with running(broker):
        outlive_retention_checks(broker, RETENTION_CHECKS)
        assert_nothing_lost(broker)
        settings = asyncio.run(all_described(broker.bootstrap))
        assert settings["inheriting"]["retention.ms"] == "-1"
        assert settings[OFFSETS]["cleanup.policy"] == "compact"
    assert "nothing is deleted from compacted, inheriting, with-" in broker.output_text()


def test_settings_changed_since_the_adoption_do_not_come_back_when_the_store_is_lost(
    kafkas: tuple[Path, dict[str, dict[str, str | None]]], tmp_path: Path
) -> None:
    directory, _ = kafkas
    shutil.copytree(directory, tmp_path / "data")
    broker = BarnabasBroker(tmp_path / "data", settings=SHORT_CHECKS)
    with running(broker):
        pass
    shutil.rmtree(tmp_path / "data" / "coordination")
    with running(broker):
        outlive_retention_checks(broker, RETENTION_CHECKS)
        assert_nothing_lost(broker)
        assert asyncio.run(all_described(broker.bootstrap))[OFFSETS]["cleanup.policy"] == "compact"
    assert "were imported before" in broker.output_text()
