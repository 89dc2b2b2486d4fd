"""Fault rules that act: half a response, zombies among producers and members, a disk that fills up."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.testing.broker import RunningBroker, run_broker


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with run_broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: RunningBroker) -> Iterator[RunningBroker]:
    yield shared
    shared.faults.clear()


def consumer(broker: RunningBroker, topic: str, group: str, **more: object) -> Consumer:
    settings = {
        "bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000, "heartbeat.interval.ms": 100, **more,
    }  # fmt: skip
    found = Consumer(settings)
    found.subscribe([topic])
    while not found.assignment():
        found.poll(0.05)
    return found


@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
def test_half_a_response_is_a_lost_response(broker: RunningBroker, idempotent: bool, copies: int) -> None:
    topic = broker.create_topic()
    rule = broker.faults.add(api="Produce", drop="during", times=1)
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "enable.idempotence": idempotent, "retry.backoff.ms": 10,
        "log_level": 0,
    })  # fmt: skip
    producer.produce(topic, b"one")
    assert producer.flush(30) == 0
    assert rule.hits == 1
    assert broker.values(topic) == [b"one"] * copies


def test_half_of_a_response_arrives_with_the_size_of_the_whole(broker: RunningBroker) -> None:
    host, _, port = broker.bootstrap.partition(":")
    request = b"\0\x12\0\0\0\0\0\x07\xff\xff"  # ApiVersions v0, correlation id 7, no client id

    def ask() -> bytes:
        with socket.create_connection((host, int(port)), timeout=30) as plain:
            plain.sendall(len(request).to_bytes(4, "big") + request)
            received = b""
            while (some := plain.recv(65_536)) and len(received + some) != 4 + int.from_bytes(
                (received + some)[:4], "big"
            ):
                received += some
            return received + some

    whole = ask()
    broker.faults.add(api="ApiVersions", drop="during", times=1)
    half = ask()
    assert half[:4] == whole[:4]
    assert len(half) == 4 + (len(whole) - 4) // 2
    assert whole.startswith(half)


def test_a_fenced_producer_cannot_commit(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"from a zombie")
    producer.flush(30)
    rule = broker.faults.add(api="EndTxn", action="fence-producer", times=1)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(30)
    assert rule.hits == 1
    assert refused.value.args[0].fatal()
    assert broker.values(topic, committed=True) == []


def test_a_producer_without_a_transactional_id_is_not_fenced(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    rule = broker.faults.add(api="Produce", action="fence-producer")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"one")
    assert producer.flush(30) == 0
    assert (rule.matches, rule.hits) == (0, 0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_fenced_member_cannot_commit(broker: RunningBroker, protocol: str) -> None:
    topic = broker.create_topic()
    group = f"zombies-{topic}"
    more: dict[str, object] = {} if protocol == "classic" else {"group.protocol": "consumer"}
    if protocol == "consumer":
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, **more}
        member = Consumer(settings)
        member.subscribe([topic])
        while not member.assignment():
            member.poll(0.05)
    else:
        member = consumer(broker, topic, group, **{"enable.auto.commit": False})
    broker.wait_for(group=group, state="Stable", members=1)
    rule = broker.faults.add(api="OffsetCommit", group=group, action="fence-member", times=1)
    with pytest.raises(KafkaException):
        member.commit(offsets=[Position(topic, 0, 5)], asynchronous=False)
    assert rule.hits == 1
    assert broker.committed(group) == {}
    member.close()


def test_a_group_rebalances_when_the_test_says(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    group = f"moving-{topic}"
    member = consumer(broker, topic, group)
    before = len(broker.requests(api="JoinGroup"))
    broker.rebalance(group)
    while len(broker.requests(api="JoinGroup")) == before:
        member.poll(0.05)
    while not member.assignment():
        member.poll(0.05)
    found = broker.wait_for(group=group, state="Stable", members=1)
    assert [each.topic for each in found.members[0].partitions] == [topic]
    member.close()
    broker.wait_for(group=group, state="Empty")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_consumer_groups([group])[group].result(60)
    assert broker.wait_for(group=group, state="Dead").members == ()
    with pytest.raises(TimeoutError, match=r"does not exist after 0\.1 s; the test waits for 0 members"):
        broker.wait_for(group=group, members=0, timeout_s=0.1)


def test_all_members_are_fenced_at_once(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    group = f"gone-{topic}"
    member = consumer(broker, topic, group)
    assert broker.fence_members(group) == 1
    while not broker.requests(api="JoinGroup", client_id="rdkafka"):
        member.poll(0.05)
    member.close()


def test_a_producer_is_fenced_by_name(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    broker.fence_producer(topic)
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_a_disk_fills_up_at_the_second_produce() -> None:
    with run_broker() as broker:
        topic = broker.create_topic()
        broker.faults.add(api="Produce", action="fill-disk", after=1, times=1)
        producer = Producer({
            "bootstrap.servers": broker.bootstrap, "message.timeout.ms": 2_000, "log_level": 0,
        })  # fmt: skip
        failed: list[bool] = []
        for value in (b"one", b"two"):
            producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error is not None))
            producer.flush(30)
        assert failed == [False, True]
        assert "No space left" in broker.halt_reason


def test_a_disk_stalls_at_the_second_produce_until_it_heals() -> None:
    with run_broker({"log.flush.interval.messages": "1"}) as broker:
        topic = broker.create_topic()
        stalled = broker.faults.add(api="Produce", action="stall-disk", after=1, times=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
        producer.produce(topic, b"one")
        assert producer.flush(30) == 0
        producer.produce(topic, b"two")
        producer.poll(0)
        stalled.wait_for_hits()
        assert producer.flush(0.2) == 1
        broker.disk.heal()
        assert producer.flush(30) == 0
        assert broker.values(topic) == [b"one", b"two"]


def test_a_function_of_the_test_answers_in_place_of_the_broker(broker: RunningBroker) -> None:
    topic = broker.create_topic()

    def invented(request: Any) -> ListOffsetsResponse:
        row = ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=-1, offset=77)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic, partitions=[row])])

    rule = broker.faults.add(api="ListOffsets", answer=invented, client_id="watched")
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "client.id": "watched"})
    assert reader.get_watermark_offsets(Position(topic, 0), timeout=30) == (77, 77)
    assert rule.hits == 2
    reader.close()


def test_a_function_of_the_test_changes_a_response(broker: RunningBroker) -> None:
    topic = broker.create_topic()

    def truncate(request: Any, response: Any) -> None:
        for each in response.responses:
            for partition in each.partition_responses:
                partition.error_code = 7  # REQUEST_TIMED_OUT, for a write that was done

    broker.faults.add(api="Produce", topic=topic, change=truncate, times=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": False, "acks": "all"})
    producer.produce(topic, b"one")
    assert producer.flush(30) == 0
    assert broker.values(topic) == [b"one", b"one"], "the producer believed the error"


@pytest.mark.parametrize("bad", [1 / 3, "no message", ListOffsetsResponse(topics=[])])
@pytest.mark.parametrize("delay", [0, "1ms"])
def test_a_function_that_fails_closes_the_connection_and_is_logged(
    broker: RunningBroker, bad: Any, delay: Any
) -> None:
    topic = broker.create_topic()

    def fail(request: Any) -> Any:
        return 1 / 0 if bad == 1 / 3 else bad

    rule = broker.faults.add(api="Produce", answer=fail, times=1, topic=topic, delay=delay)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 10, "log_level": 0})
    producer.produce(topic, b"one")
    assert producer.flush(30) == 0
    assert rule.hits == 1
    assert broker.values(topic) == [b"one"]
    assert any(topic in line and "the function of the test failed" in line for line in broker.log_lines())


def test_a_function_that_asks_its_own_broker_is_refused(broker: RunningBroker) -> None:
    """The broker's loop would wait for itself, and the test with it."""
    topic = broker.create_topic()

    def ask(_: object) -> bool:
        return bool(broker.records(topic))

    def pause(_: object) -> bool:
        broker.pause()
        return True

    for each in (ask, pause):
        rule = broker.faults.add(api="Produce", topic=topic, when=each, error="INVALID_RECORD")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 10, "log_level": 0})
        producer.produce(topic, b"one")
        assert producer.flush(0.3) == 1, "the connection closes each time"
        rule.remove()
        assert producer.flush(30) == 0
    assert broker.values(topic) == [b"one", b"one"]
    assert any("runs on the loop of barnabas-broker" in line for line in broker.log_lines())


def test_an_action_that_fails_is_logged_and_the_request_goes_on(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    member = consumer(broker, topic, f"none-{topic}")
    broker.faults.add(api="OffsetCommit", action="rebalance", group=f"simple-{topic}")
    simple = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"simple-{topic}"})
    simple.commit(offsets=[Position(topic, 0, 5)], asynchronous=False)
    assert any("the action rebalance of a fault rule failed" in line for line in broker.log_lines())
    simple.close()
    member.close()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"action": "explode"}, "write one of fence-producer"),
        ({"action": "move-leader"}, "needs other brokers"),
        ({"error": 6, "partition": -1}, "it is negative"),
        ({"delay": "-1s"}, "is not a duration"),
        ({"delay": float("nan")}, "is not a duration"),
        ({"delay": float("inf")}, "is not a duration"),
        ({"delay": "9" * 400 + "s"}, "is not a duration"),
        ({"throttle": "999999d"}, "is not a duration"),
        ({"drop": "never"}, "write 'before' or 'after'"),
        ({"error": 6, "probability": float("nan")}, "above 0"),
        ({"answer": len, "drop": "after"}, "the whole response"),
        ({"error": 6, "after": -1}, "after 0 or more"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(broker: RunningBroker, wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        broker.faults.add(**wrong)  # type: ignore[arg-type]


def test_a_rule_that_matches_everything_hits_no_question_of_the_test() -> None:
    with run_broker() as broker:
        broker.faults.add(drop="before")
        topic = broker.create_topic()
        assert broker.records(topic) == []
        assert broker.committed("g") == {}
