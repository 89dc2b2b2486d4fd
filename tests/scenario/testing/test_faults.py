"""Fault rules on a real broker, with real clients: each fault, and the known reaction of the client."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.core.ids import TopicPartition
from barnabas.testing.broker import RunningBroker, run_broker


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as broker:
        yield broker


def producer(broker: RunningBroker, **more: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 10, **more})


def values(broker: RunningBroker, topic: str) -> list[bytes | None]:
    return [each.value for each in broker.records(topic)]


def test_a_retriable_error_is_retried_by_the_producer(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    rule = broker.faults.add(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=3)
    writer = producer(broker)
    writer.produce(topic, b"one")
    assert writer.flush(30) == 0
    assert rule.hits == 3
    assert values(broker, topic) == [b"one"]
    assert len(broker.requests(api="Produce")) == 4


def test_only_the_named_partition_gets_the_error(broker: RunningBroker) -> None:
    topic = broker.create_topic(partitions=3)
    broker.faults.add(api="Produce", topic=topic, partition=1, error="INVALID_RECORD")
    failed: dict[int, KafkaError | None] = {}

    def delivered(partition: int, error: KafkaError | None, message: object) -> None:
        failed[partition] = error

    # One request for all three: the rest of a request is served.
    writer = producer(broker, **{"linger.ms": 200, "enable.idempotence": False})
    for partition in range(3):
        writer.produce(topic, b"x", partition=partition, on_delivery=partial(delivered, partition))
    assert writer.flush(30) == 0
    assert failed[0] is None
    assert failed[2] is None
    assert failed[1] is not None
    assert failed[1].name() == "INVALID_RECORD"
    assert [each.partition for each in broker.records(topic)] == [0, 2]


@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
def test_a_lost_response_makes_a_duplicate_unless_the_producer_is_idempotent(
    broker: RunningBroker, idempotent: bool, copies: int
) -> None:
    topic = broker.create_topic()
    rule = broker.faults.add(api="Produce", drop="after", times=1)
    writer = producer(broker, **{"enable.idempotence": idempotent, "acks": "all"})
    writer.produce(topic, b"one")
    assert writer.flush(30) == 0
    assert rule.hits == 1
    assert values(broker, topic) == [b"one"] * copies


def test_a_connection_dropped_before_the_work_loses_nothing_and_doubles_nothing(
    broker: RunningBroker,
) -> None:
    topic = broker.create_topic()
    broker.faults.add(api="Produce", drop="before", times=2)
    writer = producer(broker, **{"enable.idempotence": False})
    writer.produce(topic, b"one")
    assert writer.flush(30) == 0
    assert values(broker, topic) == [b"one"]


def test_a_reader_in_a_fetch_session_meets_errors_of_its_partition(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    writer = producer(broker)
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    reader.subscribe([topic])
    writer.produce(topic, b"one")
    assert writer.flush(30) == 0
    first = reader.poll(30)
    assert first is not None
    assert first.value() == b"one"

    rule = broker.faults.add(api="Fetch", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
    rule.wait_for_hits(2)
    writer.produce(topic, b"two")
    assert writer.flush(30) == 0
    second = reader.poll(30)
    assert second is not None
    assert second.value() == b"two"
    reader.commit(asynchronous=False)
    reader.close()
    assert broker.committed("g") == {TopicPartition(topic, 0): 2}


def test_a_slow_answer_runs_into_the_clients_timeout(broker: RunningBroker) -> None:
    rule = broker.faults.add(api="CreateTopics", delay="60s", client_id="impatient")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "impatient"})
    (created,) = admin.create_topics([NewTopic("late", 1)], request_timeout=0.5).values()
    with pytest.raises(KafkaException) as error:
        created.result(30)
    assert "TIMED_OUT" in error.value.args[0].name()
    assert rule.hits == 1


def test_a_throttled_response_says_so(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    throttled: list[float] = []
    # librdkafka also calls back at the next response without a throttle time. Telemetry would bring one.
    writer = producer(
        broker,
        throttle_cb=lambda event: throttled.append(event.throttle_time),
        **{"enable.metrics.push": False},
    )
    broker.faults.add(api="Produce", throttle="50ms", times=1)
    writer.produce(topic, b"one")
    assert writer.flush(30) == 0
    writer.poll(1)
    assert throttled == [0.05]


def test_a_rule_of_a_group_hits_no_other_group(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    rule = broker.faults.add(api="OffsetCommit", group="unlucky", error="COORDINATOR_NOT_AVAILABLE")
    for group in ("unlucky", "lucky"):
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        offsets = [Position(topic, 0, 5)]
        if group == "lucky":
            reader.commit(offsets=offsets, asynchronous=False)
        else:
            with pytest.raises(KafkaException):
                reader.commit(offsets=offsets, asynchronous=False)
        reader.close()
    assert rule.hits >= 1
    assert broker.committed("lucky") == {TopicPartition(topic, 0): 5}
    assert broker.committed("unlucky") == {}


def test_after_and_times_count_matches(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    rule = broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT", after=2, times=1)
    writer = producer(broker)
    for at in range(4):
        writer.produce(topic, str(at).encode())
        assert writer.flush(30) == 0
    assert (rule.matches, rule.hits) == (5, 1)
    assert values(broker, topic) == [b"0", b"1", b"2", b"3"]


async def test_hits_can_be_awaited_and_rules_removed(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    rule = broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER")
    writer = producer(broker)
    writer.produce(topic, b"one")
    writer.poll(0)
    await rule.hit(2)
    assert list(broker.faults) == [rule]
    rule.remove()
    assert len(broker.faults) == 0
    assert writer.flush(30) == 0


def test_a_full_disk_stops_a_broker_with_one_log_directory(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    broker.disk.fail("ENOSPC", under=topic)
    failed: list[KafkaError | None] = []
    writer = producer(broker, **{"message.timeout.ms": 1_000})
    writer.produce(topic, b"lost", on_delivery=lambda error, _: failed.append(error))
    assert writer.flush(30) == 0
    assert failed[0] is not None
    assert broker.disk.refused > 0
    assert "No space left on device" in broker.halt_reason
    with pytest.raises(RuntimeError, match=r"the broker halted, and answers nothing: .*No space left"):
        broker.records(topic)


def test_a_stalled_disk_delays_a_synced_write_until_it_heals(broker: RunningBroker) -> None:
    topic = broker.create_topic(flush_messages="1")
    broker.disk.stall(under=topic)
    delivered: list[KafkaError | None] = []
    writer = producer(broker)
    writer.produce(topic, b"late", on_delivery=lambda error, _: delivered.append(error))
    writer.flush(1)
    assert delivered == []
    broker.disk.heal()
    assert writer.flush(30) == 0
    assert delivered == [None]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"error": "NOT_LEADER"}, "did you mean NOT_LEADER_OR_FOLLOWER"),
        ({"api": "Prodcue", "drop": "after"}, "did you mean Produce"),
        ({"api": "Produce"}, "needs an effect"),
        ({"drop": "after", "error": 6}, "either error or drop"),
        ({"delay": "5 parsecs"}, "is not a duration"),
        ({"delay": -1.0}, "negative"),
        ({"error": 6, "times": 0}, "hits once or more"),
        ({"error": 6, "probability": 0.0}, "above 0"),
    ],
)
def test_a_rule_without_effect_is_refused(broker: RunningBroker, wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        broker.faults.add(**wrong)  # type: ignore[arg-type]
