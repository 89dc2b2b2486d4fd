"""The admin client of librdkafka: topics, configs, partitions, records, cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.broker import Broker
from tests.support.fixtures import TopicFactory

pytestmark = pytest.mark.client("confluent-kafka")

TIMEOUT_S = 60.0


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def only(futures: dict[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def code_of(futures: dict[Any, Future[Any]]) -> int:
    with pytest.raises(KafkaException) as caught:
        only(futures)
    return int(caught.value.args[0].code())


def eventually(condition: Callable[[], bool]) -> None:
    """Apache Kafka publishes metadata after it has answered; the wait is for that, not for us."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.02)


def partition_count(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions)


def configs_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    entries: dict[str, ConfigEntry] = only(admin.describe_configs([ConfigResource(kind, name)]))
    return entries


@pytest.mark.feature("create-topic", "describe-topic")
def test_a_created_topic_is_listed_and_described(admin: AdminClient) -> None:
    new = NewTopic("admin.created", num_partitions=3, replication_factor=1, config={"retention.ms": "123456"})
    only(admin.create_topics([new]))
    eventually(lambda: partition_count(admin, "admin.created") == 3)
    assert "admin.created" in admin.list_topics(timeout=TIMEOUT_S).topics
    described = only(admin.describe_topics(TopicCollection(["admin.created"])))
    assert described.name == "admin.created"
    assert not described.is_internal
    assert described.topic_id is not None
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert partition.leader is not None
        assert (
            [node.id for node in partition.isr]
            == [node.id for node in partition.replicas]
            == [partition.leader.id]
        )
    entry = configs_of(admin, ResourceType.TOPIC, "admin.created")["retention.ms"]
    source: Any = entry.source  # a number, whatever its declaration says
    assert (entry.value, source) == ("123456", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


def test_an_unset_count_takes_the_brokers_default(admin: AdminClient) -> None:
    only(admin.create_topics([NewTopic("admin.defaults")]))
    eventually(lambda: admin.list_topics("admin.defaults", TIMEOUT_S).topics["admin.defaults"].error is None)
    assert partition_count(admin, "admin.defaults") == 1


def test_validate_only_creates_nothing(admin: AdminClient) -> None:
    only(admin.create_topics([NewTopic("admin.validated", 1, 1)], validate_only=True))
    assert "admin.validated" not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_creating_a_topic_twice_is_refused(admin: AdminClient, topic: str) -> None:
    assert code_of(admin.create_topics([NewTopic(topic, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["", ".", "..", "no/slash", "no space", "x" * 250, "naïve"])
def test_an_invalid_name_is_refused(admin: AdminClient, name: str) -> None:
    try:
        code = code_of(admin.create_topics([NewTopic(name, 1, 1)]))
    except ValueError:
        pytest.skip("librdkafka itself refuses the name")
    assert code == KafkaError.TOPIC_EXCEPTION


def test_names_that_collide_in_metrics_are_refused(admin: AdminClient) -> None:
    only(admin.create_topics([NewTopic("admin.collision_one", 1, 1)]))
    assert code_of(admin.create_topics([NewTopic("admin.collision.one", 1, 1)])) == KafkaError.TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"no.such.key": "1"}, KafkaError.INVALID_CONFIG),
        ({"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ({"segment.bytes": "1"}, KafkaError.INVALID_CONFIG),
        ({"cleanup.policy": "burn"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_an_invalid_config_is_refused(admin: AdminClient, config: dict[str, str], code: int) -> None:
    assert code_of(admin.create_topics([NewTopic("admin.bad-config", 1, 1, config=config)])) == code
    assert "admin.bad-config" not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_impossible_counts_are_refused(admin: AdminClient) -> None:
    too_many_replicas = admin.create_topics([NewTopic("admin.replicas", 1, 50)])
    assert code_of(too_many_replicas) == KafkaError.INVALID_REPLICATION_FACTOR
    no_partitions = admin.create_topics([NewTopic("admin.partitions", 0, 1)])
    assert code_of(no_partitions) == KafkaError.INVALID_PARTITIONS


def test_an_explicit_assignment_is_kept(admin: AdminClient) -> None:
    broker_id = next(iter(admin.list_topics(timeout=TIMEOUT_S).brokers))
    new = NewTopic("admin.assigned", 2, replica_assignment=[[broker_id], [broker_id]])
    only(admin.create_topics([new]))
    eventually(lambda: partition_count(admin, "admin.assigned") == 2)
    unknown = NewTopic("admin.nowhere", 1, replica_assignment=[[4_242]])
    assert code_of(admin.create_topics([unknown])) == KafkaError.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.feature("create-partitions")
def test_partitions_are_added_but_never_taken_away(admin: AdminClient, topic: str) -> None:
    only(admin.create_partitions([NewPartitions(topic, 4)]))
    eventually(lambda: partition_count(admin, topic) == 4)
    for count in (2, 4):
        assert (
            code_of(admin.create_partitions([NewPartitions(topic, count)])) == KafkaError.INVALID_PARTITIONS
        )
    missing = admin.create_partitions([NewPartitions("admin.missing", 2)])
    assert code_of(missing) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.feature("delete-topic")
def test_a_deleted_topic_is_gone_and_its_name_is_free(admin: AdminClient, topic: str) -> None:
    before = only(admin.describe_topics(TopicCollection([topic]))).topic_id
    only(admin.delete_topics([topic]))
    eventually(lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics)
    assert code_of(admin.delete_topics([topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    only(admin.create_topics([NewTopic(topic, 2, 1)]))
    eventually(lambda: partition_count(admin, topic) == 2)
    assert str(only(admin.describe_topics(TopicCollection([topic]))).topic_id) != str(before)


@pytest.mark.feature("describe-configs")
def test_topic_configs_are_described_with_their_defaults(admin: AdminClient, new_topic: TopicFactory) -> None:
    topic = new_topic(cleanup_policy="compact", max_message_bytes=5_000)
    entries = configs_of(admin, ResourceType.TOPIC, topic)
    assert {"retention.ms", "segment.bytes", "compression.type", "min.insync.replicas"} <= entries.keys()
    assert (entries["cleanup.policy"].value, entries["cleanup.policy"].is_default) == ("compact", False)
    assert (entries["max.message.bytes"].value, entries["max.message.bytes"].is_default) == ("5000", False)
    assert (entries["retention.ms"].value, entries["retention.ms"].is_default) == ("604800000", True)
    assert (entries["segment.bytes"].value, entries["compression.type"].value) == ("1073741824", "producer")


def test_broker_configs_are_described(admin: AdminClient) -> None:
    broker_id = next(iter(admin.list_topics(timeout=TIMEOUT_S).brokers))
    entries = configs_of(admin, ResourceType.BROKER, str(broker_id))
    assert {"log.dirs", "listeners", "message.max.bytes", "num.partitions"} <= entries.keys()
    assert entries["log.dirs"].is_read_only
    assert not entries["message.max.bytes"].is_read_only


def test_configs_of_an_unknown_topic_are_an_error(admin: AdminClient) -> None:
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "admin.missing")])
    assert code_of(asked) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.feature("alter-configs")
@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_alter_configs_replaces_all_and_incremental_changes_one(admin: AdminClient, topic: str) -> None:
    def value(key: str) -> tuple[str | None, bool]:
        entry = configs_of(admin, ResourceType.TOPIC, topic)[key]
        return entry.value, entry.is_default

    def incremental(key: str, text: str | None, operation: AlterConfigOpType) -> ConfigResource:
        entry = ConfigEntry(key, text, incremental_operation=operation)
        return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])

    only(
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "1000"})])
    )
    eventually(lambda: value("retention.ms") == ("1000", False))
    setting = incremental("segment.bytes", "2000000", AlterConfigOpType.SET)
    only(admin.incremental_alter_configs([setting]))
    eventually(lambda: value("segment.bytes") == ("2000000", False))
    assert value("retention.ms") == ("1000", False)
    only(admin.incremental_alter_configs([incremental("retention.ms", None, AlterConfigOpType.DELETE)]))
    eventually(lambda: value("retention.ms") == ("604800000", True))
    only(
        admin.incremental_alter_configs([incremental("cleanup.policy", "compact", AlterConfigOpType.APPEND)])
    )
    eventually(lambda: set(str(value("cleanup.policy")[0]).split(",")) == {"delete", "compact"})
    only(
        admin.incremental_alter_configs([incremental("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)])
    )
    eventually(lambda: value("cleanup.policy")[0] == "compact")
    only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "5"})]))
    eventually(lambda: value("segment.bytes") == ("1073741824", True))


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_an_invalid_alteration_is_refused_and_changes_nothing(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("retention.ms", "never", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    assert code_of(admin.incremental_alter_configs([resource])) == KafkaError.INVALID_CONFIG
    assert configs_of(admin, ResourceType.TOPIC, topic)["retention.ms"].is_default
    wrong = ConfigResource(ResourceType.TOPIC, topic, set_config={"no.such.key": "1"})
    assert code_of(admin.alter_configs([wrong])) == KafkaError.INVALID_CONFIG


@pytest.mark.feature("delete-records")
def test_deleted_records_move_the_start_of_the_log(bootstrap: str, admin: AdminClient, topic: str) -> None:
    sender = Producer({"bootstrap.servers": bootstrap})
    for i in range(10):
        sender.produce(topic, b"%d" % i)
    assert sender.flush(TIMEOUT_S) == 0
    result = only(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert result.low_watermark == 4
    earliest = only(admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}))
    assert earliest.offset == 4
    assert code_of(admin.delete_records([TopicPartition(topic, 0, 11)])) == KafkaError.OFFSET_OUT_OF_RANGE
    everything = only(admin.delete_records([TopicPartition(topic, 0, -1)]))
    assert everything.low_watermark == 10


@pytest.mark.feature("list-offsets")
def test_offsets_are_listed_by_every_specification(bootstrap: str, admin: AdminClient, topic: str) -> None:
    partition = TopicPartition(topic, 0)

    def listed(spec: OffsetSpec) -> int:
        return int(only(admin.list_offsets({partition: spec})).offset)

    assert listed(OffsetSpec.max_timestamp()) == -1
    sender = Producer({"bootstrap.servers": bootstrap, "linger.ms": 200})
    for i, stamp in enumerate([1_000, 3_000, 2_000]):
        sender.produce(topic, b"%d" % i, timestamp=stamp)
    assert sender.flush(TIMEOUT_S) == 0
    assert listed(OffsetSpec.earliest()) == 0
    assert listed(OffsetSpec.latest()) == 3
    assert listed(OffsetSpec.max_timestamp()) == 1
    assert listed(OffsetSpec.for_timestamp(1_500)) == 1
    assert listed(OffsetSpec.for_timestamp(4_000)) == -1


@pytest.mark.feature("connect")
def test_the_cluster_describes_itself(admin: AdminClient, broker: Broker) -> None:
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert described.cluster_id
    assert [(node.host, node.port) for node in described.nodes] == [(broker.host, broker.port)]
    assert described.controller.id == described.nodes[0].id
    metadata = admin.list_topics(timeout=TIMEOUT_S)
    assert metadata.cluster_id == described.cluster_id
    assert metadata.controller_id == described.controller.id


def test_an_unknown_topic_is_described_as_unknown(admin: AdminClient) -> None:
    assert (
        code_of(admin.describe_topics(TopicCollection(["admin.missing"]))) == KafkaError.UNKNOWN_TOPIC_OR_PART
    )
