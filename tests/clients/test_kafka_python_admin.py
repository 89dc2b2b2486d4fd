"""The admin client of kafka-python, which asks for things that librdkafka cannot (log dirs)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from tests.support.broker import Broker

pytestmark = pytest.mark.client("kafka-python")

TIMEOUT_S = 60.0


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def topic_config(name: str, configs: Any = None) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name, configs)


def described_config(admin: KafkaAdminClient, topic: str, key: str) -> Any:
    found = admin.describe_configs([topic_config(topic)], config_filter="all")
    return found["topic"][topic][key]["value"]


def wait_for_config(admin: KafkaAdminClient, topic: str, key: str, value: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while described_config(admin, topic, key) != value:
        assert time.monotonic() < deadline, f"{key} never became {value}"
        time.sleep(0.02)


@pytest.mark.feature("connect", "create-topic", "describe-topic", "describe-configs", "delete-topic")
def test_topics_are_created_listed_described_and_deleted(admin: KafkaAdminClient) -> None:
    options = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "99999"}}
    admin.create_topics({"pyadmin.life": options}, wait_for_metadata=True)
    assert "pyadmin.life" in admin.list_topics()
    (described,) = admin.describe_topics(["pyadmin.life"])
    assert described["error_code"] == 0
    assert len(described["partitions"]) == 2
    assert described_config(admin, "pyadmin.life", "retention.ms") == "99999"
    admin.delete_topics(["pyadmin.life"])
    deadline = time.monotonic() + TIMEOUT_S
    while "pyadmin.life" in admin.list_topics():
        assert time.monotonic() < deadline, "still listed"
        time.sleep(0.02)


def test_mistakes_are_named(admin: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])
    with pytest.raises(InvalidTopicError):
        admin.create_topics(["not a name"])
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics({"pyadmin.bad": {"configs": {"retention.ms": "x"}}})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["pyadmin.missing"])
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 1})


@pytest.mark.feature("create-partitions")
def test_partitions_are_added(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_partitions({topic: 3})
    deadline = time.monotonic() + TIMEOUT_S
    while len(admin.describe_topics([topic])[0]["partitions"]) != 3:
        assert time.monotonic() < deadline, "never described"
        time.sleep(0.02)


@pytest.mark.feature("alter-configs")
@pytest.mark.parametrize("incremental", [True, False])
def test_configs_are_altered_and_reset(admin: KafkaAdminClient, topic: str, incremental: bool) -> None:
    change = {"retention.ms": (AlterConfigOp.SET, "77777")}
    admin.alter_configs([topic_config(topic, change)], incremental=incremental)
    wait_for_config(admin, topic, "retention.ms", "77777")
    admin.reset_configs([topic_config(topic, ["retention.ms"])], incremental=incremental)
    wait_for_config(admin, topic, "retention.ms", "604800000")


@pytest.mark.feature("delete-records")
def test_records_are_deleted_and_offsets_listed(admin: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    for i in range(10):
        sender.send(topic, b"%d" % i)
    sender.flush(TIMEOUT_S)
    sender.close()
    partition = TopicPartition(topic, 0)
    deleted = admin.delete_records({partition: 7})
    assert deleted[partition]["low_watermark"] == 7
    assert admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 7
    assert admin.list_partition_offsets({partition: OffsetSpec.LATEST})[partition].offset == 10


def test_the_cluster_and_its_log_directories_describe_themselves(
    admin: KafkaAdminClient, bootstrap: str, broker: Broker, topic: str
) -> None:
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert [(b["host"], b["port"]) for b in cluster["brokers"]] == [(broker.host, broker.port)]
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    sender.send(topic, bytes(1_000)).get(TIMEOUT_S)
    sender.close()
    (answer,) = admin.describe_log_dirs([topic])
    (directory,) = answer["log_dirs"]
    assert directory["error_code"] == 0
    (row,) = directory["topics"]
    (partition,) = row["partitions"]
    assert partition["partition_size"] > 1_000
    assert (partition["offset_lag"], partition["is_future_key"]) == (0, False)
