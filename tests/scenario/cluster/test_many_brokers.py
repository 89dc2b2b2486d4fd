"""Three brokers as one cluster: clients find leaders and coordinators, and records survive moves and
failures.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    PartitionMetadata,
    ResourceType,
)

from barnabas.client.aio.channel import Channel
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.chaos.replicas import differences, partition_directories
from tests.support import topology
from tests.support.cluster import Cluster, ClusterBroker
from tests.support.waiting import ATTEMPT_S, PATIENCE_S, eventually

_names = itertools.count()


@pytest.fixture
def admin(three: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": three.bootstrap, "log_level": 0})


@pytest.fixture(autouse=True)
def whole(three: Cluster) -> None:
    """Restart the brokers that a test stopped, so that the next one finds three."""
    for broker in three.brokers:
        if not broker.is_running:
            broker.start()


def new_topic(admin: AdminClient, partitions: int = 3, replicas: int = 3, **config: str) -> str:
    name = f"topic-{next(_names)}"
    made = admin.create_topics(
        [NewTopic(name, partitions, replicas, config={k.replace("_", "."): v for k, v in config.items()})]
    )
    made[name].result(PATIENCE_S)
    return name


def partitions_of(admin: AdminClient, topic: str) -> dict[int, PartitionMetadata]:
    """As soon as a broker tells: the client may ask a killed broker, or one that does not know the topic."""

    def look() -> dict[int, PartitionMetadata]:
        found = admin.list_topics(topic, timeout=ATTEMPT_S).topics[topic]
        return {} if found.error is not None else found.partitions

    return eventually(look, f"a broker knows {topic}")


def leader_of(three: Cluster, admin: AdminClient, topic: str) -> ClusterBroker:
    three.wait_for(lambda: partitions_of(admin, topic)[0].leader != -1)
    return three.broker(partitions_of(admin, topic)[0].leader)


def in_sync(admin: AdminClient, topic: str) -> Callable[[], bool]:
    def look() -> bool:
        return all(len(at.isrs) == len(at.replicas) for at in partitions_of(admin, topic).values())

    return look


class Deliveries:
    """Outcome of the records of a producer."""

    def __init__(self) -> None:
        self.offsets: dict[bytes, int] = {}
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.offsets[message.value() or b""] = message.offset() or 0


def produce(three: Cluster, topic: str, values: list[bytes], partition: int = 0) -> Deliveries:
    deliveries = Deliveries()
    producer = Producer(
        {"bootstrap.servers": three.bootstrap, "enable.idempotence": True, "acks": "all", "log_level": 0}
    )
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=deliveries)
    assert producer.flush(PATIENCE_S) == 0
    return deliveries


def consume(three: Cluster, topic: str, count: int, **settings: object) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": three.bootstrap,
            "group.id": f"group-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < count and time.monotonic() < deadline:
            values += [each.value() or b"" for each in consumer.consume(500, 0.1) if each.error() is None]
    finally:
        consumer.close()
    return values


def test_every_broker_tells_of_the_same_cluster(three: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin)

    def seen_by(broker: ClusterBroker) -> tuple[object, ...]:
        seen = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=ATTEMPT_S)
        leaders = {number: at.leader for number, at in seen.topics[topic].partitions.items()}
        return seen.cluster_id, seen.controller_id, sorted(seen.brokers), leaders

    def same() -> tuple[object, ...]:
        views = [seen_by(broker) for broker in three.brokers]
        return views[0] if views[0] == views[1] == views[2] else ()

    for broker in three.brokers:
        three.wait_for(lambda at=broker: topic in topology.view(at.host, at.port).topic_errors)  # type: ignore[misc]
    _, _, brokers, leaders = eventually(same, "all brokers agree", report=three.output_text)
    assert brokers == [1, 2, 3]
    assert isinstance(leaders, dict)
    assert set(leaders.values()) == {1, 2, 3}


def test_what_is_acknowledged_is_on_every_replica(three: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, partitions=1)
    values = [str(number).encode() for number in range(500)]
    deliveries = produce(three, topic, values)
    assert not deliveries.errors
    assert len(deliveries.offsets) == 500
    roots: dict[int, Path] = {broker.id: broker.data_directory for broker in three.brokers}
    three.wait_for(in_sync(admin, topic))
    directories = partition_directories(roots, topic, 0)
    assert set(directories) == {1, 2, 3}
    assert differences(directories) == []


def test_a_write_that_too_few_have_is_refused(three: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, partitions=1, replicas=2, min_insync_replicas="2")
    leader = leader_of(three, admin, topic)
    replicas = partitions_of(admin, topic)[0].replicas
    follower = three.broker(next(each for each in replicas if each != leader.id))
    follower.kill()
    # The leader refuses from this moment on; another broker may know of it a moment earlier.
    three.wait_for(lambda: topology.view(leader.host, leader.port, [topic]).of(topic)[0].isr == (leader.id,))
    deliveries = Deliveries()
    producer = Producer({"bootstrap.servers": three.bootstrap, "acks": "all", "retries": 0, "log_level": 0})
    producer.produce(topic, b"x", partition=0, on_delivery=deliveries)
    producer.flush(PATIENCE_S)
    assert [error.code() for error in deliveries.errors] == [KafkaError.NOT_ENOUGH_REPLICAS]
    follower.start()
    three.wait_for(in_sync(admin, topic))
    assert not produce(three, topic, [b"y"]).errors


def test_a_killed_leader_is_replaced_and_nothing_is_lost(three: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, partitions=1)
    before = produce(three, topic, [b"before"])
    assert consume(three, topic, 1) == [b"before"]  # the offsets topic must exist: three brokers make it
    killed = leader_of(three, admin, topic)
    killed.kill()
    after = produce(three, topic, [b"after"])
    assert not before.errors
    assert not after.errors
    three.wait_for(lambda: leader_of(three, admin, topic) is not killed)
    assert consume(three, topic, 2) == [b"before", b"after"]
    killed.start()
    three.wait_for(in_sync(admin, topic))


def test_a_rolling_restart_shows_no_client_an_error(three: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, partitions=3)
    stop = threading.Event()
    deliveries = Deliveries()
    sent = itertools.count()

    def go_on() -> None:
        producer = Producer(
            {"bootstrap.servers": three.bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )
        while not stop.is_set():
            number = next(sent)
            producer.produce(topic, str(number).encode(), partition=number % 3, on_delivery=deliveries)
            producer.poll(0.005)
        producer.flush(PATIENCE_S)

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        for broker in three.brokers:
            broker.restart()
            three.wait_for(in_sync(admin, topic))
    finally:
        stop.set()
        writer.join(PATIENCE_S)
    assert not writer.is_alive()
    count = next(sent)
    assert not deliveries.errors
    assert len(deliveries.offsets) == count
    assert len(consume(three, topic, count)) == count


def test_groups_and_transactions_move_with_their_coordinators(three: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, partitions=1)
    producer = Producer(
        {"bootstrap.servers": three.bootstrap, "transactional.id": f"id-{topic}", "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    consumer = Consumer(
        {
            "bootstrap.servers": three.bootstrap,
            "group.id": f"group-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    try:
        for number, broker in enumerate(three.brokers):
            producer.begin_transaction()
            producer.produce(topic, str(number).encode(), partition=0)
            producer.flush(PATIENCE_S)
            broker.terminate()  # one of them coordinates, another leads; each gets its turn
            producer.commit_transaction(PATIENCE_S)
            messages: list[Message] = []
            while not messages:
                messages = [each for each in consumer.consume(1, 1.0) if each.error() is None]
            assert messages[0].value() == str(number).encode()
            consumer.commit(message=messages[0], asynchronous=False)
            broker.start()
            three.wait_for(in_sync(admin, topic))
        (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        assert committed.offset == (messages[0].offset() or 0) + 1
    finally:
        consumer.close()


def test_a_setting_reaches_every_broker(three: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, partitions=1)
    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    for broker in three.brokers:
        alone = AdminClient({"bootstrap.servers": broker.bootstrap})

        def told(alone: AdminClient = alone) -> bool:
            asked = ConfigResource(ResourceType.TOPIC, topic)
            told: str = alone.describe_configs([asked])[asked].result(PATIENCE_S)["retention.ms"].value
            return told == "12345"

        three.wait_for(told)


async def error_of_configs(broker: ClusterBroker, topic: str) -> int:
    """Asked of this very broker; an admin client may ask any."""
    channel = await Channel.connect(Endpoint(broker.host, broker.port))
    try:
        asked = DescribeConfigsResource(resource_type=int(ResourceType.TOPIC.value), resource_name=topic)
        request = DescribeConfigsRequest(resources=[asked])
        return (await channel.send(request, DescribeConfigsResponse)).results[0].error_code
    finally:
        channel.close()


def test_the_settings_of_a_deleted_topic_leave_every_broker(three: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, partitions=1)

    def errors() -> list[int]:
        return [asyncio.run(error_of_configs(broker, topic)) for broker in three.brokers]

    three.wait_for(lambda: errors() == [0, 0, 0])
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    three.wait_for(lambda: errors() == [UnknownTopicOrPartition.code] * 3)


def test_a_deleted_topic_leaves_no_file(three: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, partitions=3)
    produce(three, topic, [b"x"])
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    three.wait_for(lambda: topic not in admin.list_topics(timeout=ATTEMPT_S).topics)
    roots = [broker.data_directory for broker in three.brokers]
    three.wait_for(lambda: not [root for root in roots if (root / f"{topic}-0").exists()])

    def is_made_again() -> bool:  # once the controller has removed the last of the first one
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(PATIENCE_S)
        return True

    three.wait_for(is_made_again)
    assert produce(three, topic, [b"new"]).offsets == {b"new": 0}
