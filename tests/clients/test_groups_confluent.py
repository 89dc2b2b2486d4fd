"""Consumer groups through librdkafka: subscribe, rebalance, commit, leave, crash, come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.support.fixtures import TopicFactory

DEADLINE_S = 60.0
PROTOCOLS = ["classic", "consumer"]

ConsumerFactory = Callable[..., Consumer]


def produce(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    sender = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        sender.produce(topic, str(number).encode(), partition=number % partitions)
    assert sender.flush(DEADLINE_S) == 0


def take(receiver: Consumer, count: int) -> list[int]:
    """So many records."""
    values: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records"
        message = receiver.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            values.append(int(value))
    return values


def until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    """Poll the consumers, which is how they rebalance, until the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, [each.assignment() for each in consumers]
        for each in consumers:
            each.poll(0.05)


def spread(*consumers: Consumer) -> list[int]:
    return sorted(len(each.assignment()) for each in consumers)


@pytest.fixture
def join(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[ConsumerFactory]:
    """`join(topic, protocol)` makes a member of the test's own group."""
    made: list[Consumer] = []

    def make(topic: str, protocol: str = "classic", **settings: Any) -> Consumer:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": request.node.name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        receiver = Consumer(config | {key.replace("_", "."): value for key, value in settings.items()})
        receiver.subscribe([topic])
        made.append(receiver)
        return receiver

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_shares_a_topic_and_goes_on_where_it_was(
    bootstrap: str, new_topic: TopicFactory, join: ConsumerFactory, protocol: str
) -> None:
    topic = new_topic(partitions=4)
    produce(bootstrap, topic, 100, partitions=4)
    first = join(topic, protocol)
    assert sorted(take(first, 100)) == list(range(100))
    first.commit(asynchronous=False)
    second = join(topic, protocol)
    until(lambda: spread(first, second) == [2, 2], first, second)
    first.close()
    until(lambda: spread(second) == [4], second)
    produce(bootstrap, topic, 8, partitions=4)
    assert sorted(take(second, 8)) == list(range(8))
    committed = second.committed([TopicPartition(topic, number) for number in range(4)], timeout=DEADLINE_S)
    assert [each.offset for each in committed] == [25, 25, 25, 25]


def test_a_cooperative_group_moves_only_what_it_must(new_topic: TopicFactory, join: ConsumerFactory) -> None:
    topic = new_topic(partitions=4)
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    first = join(topic, **strategy)
    until(lambda: spread(first) == [4], first)
    before = {each.partition for each in first.assignment()}
    second = join(topic, **strategy)
    until(lambda: spread(first, second) == [2, 2], first, second)
    assert {each.partition for each in first.assignment()} < before


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_subscribes_to_what_it_matches(
    bootstrap: str, new_topic: TopicFactory, join: ConsumerFactory, protocol: str
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, 5)
    receiver = join(f"^{topic[:-1]}.$", protocol)
    assert take(receiver, 5) == list(range(5))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_to_its_partitions(
    new_topic: TopicFactory, join: ConsumerFactory, protocol: str
) -> None:
    topic = new_topic(partitions=4)
    first = join(topic, protocol, group_instance_id="one")
    second = join(topic, protocol, group_instance_id="two")
    until(lambda: spread(first, second) == [2, 2], first, second)
    before = {each.partition for each in first.assignment()}
    first.close()
    again = join(topic, protocol, group_instance_id="one")
    until(lambda: spread(again) == [2], again, second)
    assert {each.partition for each in again.assignment()} == before
    assert spread(second) == [2]


def test_commits_of_a_previous_generation_are_refused(
    bootstrap: str, new_topic: TopicFactory, join: ConsumerFactory
) -> None:
    topic = new_topic(partitions=2)
    produce(bootstrap, topic, 2, partitions=2)
    receiver = join(topic)
    take(receiver, 2)
    receiver.commit(asynchronous=False)
    outsider = join(topic, enable_auto_commit=False)
    outsider.unsubscribe()
    outsider.assign([TopicPartition(topic, 0)])
    with pytest.raises(KafkaException) as refused:
        outsider.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert refused.value.args[0].name() == "UNKNOWN_MEMBER_ID"


def test_administrators_list_describe_and_change_groups(
    bootstrap: str, new_topic: TopicFactory, join: ConsumerFactory, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(partitions=2)
    produce(bootstrap, topic, 10, partitions=2)
    group = request.node.name
    receiver = join(topic)
    take(receiver, 10)
    receiver.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def described() -> Any:
        return admin.describe_consumer_groups([group])[group].result(DEADLINE_S)

    assert described().state == ConsumerGroupState.STABLE
    (member,) = described().members
    assert {each.partition for each in member.assignment.topic_partitions} == {0, 1}
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert not listed.errors
    assert group in [each.group_id for each in listed.valid]
    receiver.close()
    assert described().state == ConsumerGroupState.EMPTY
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([wanted])[group].result(DEADLINE_S)
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S)
    assert {each.partition: each.offset for each in found.topic_partitions} == {0: 3, 1: 5}
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert group not in [each.group_id for each in listed.valid]
