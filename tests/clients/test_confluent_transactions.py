"""librdkafka's transactional producer through confluent-kafka, and what committed readers see of it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.fixtures import TopicFactory

TIMEOUT_S = 60.0


def new_id() -> str:
    return f"tx-{uuid.uuid4()}"


def transactional(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "log_level": 0,
            **named,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def produce(producer: Producer, topic: str, values: Sequence[str], partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)


def read_all(
    bootstrap: str, topic: str, *, partitions: int = 1, isolation: str = "read_committed"
) -> list[list[str]]:
    """Records of each partition for a reader of this kind, up to the current end of its visible records."""
    found: list[list[str]] = [[] for _ in range(partitions)]
    receiver = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-all",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        receiver.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        left = partitions
        while left:
            message = receiver.poll(TIMEOUT_S)
            assert message is not None, "silence"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left -= 1
            else:
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert value is not None
                found[partition].append(value.decode())
    finally:
        receiver.close()
    return found


def test_a_transaction_is_seen_whole_once_it_is_committed(bootstrap: str, new_topic: TopicFactory) -> None:
    topic = new_topic(partitions=3)
    producer = transactional(bootstrap, new_id())
    producer.begin_transaction()
    for partition in range(3):
        produce(producer, topic, ["x", "y"], partition)
    producer.flush(TIMEOUT_S)
    assert read_all(bootstrap, topic, partitions=3) == [[], [], []]
    assert read_all(bootstrap, topic, partitions=3, isolation="read_uncommitted") == [["x", "y"]] * 3
    producer.commit_transaction(TIMEOUT_S)
    assert read_all(bootstrap, topic, partitions=3) == [["x", "y"]] * 3


def test_what_was_aborted_is_hidden_from_committed_readers_only(bootstrap: str, topic: str) -> None:
    producer = transactional(bootstrap, new_id())
    for number, ends in enumerate([True, False, True, False, False, True]):
        producer.begin_transaction()
        produce(producer, topic, [f"{number}a", f"{number}b"])
        producer.flush(TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S) if ends else producer.abort_transaction(TIMEOUT_S)
    assert read_all(bootstrap, topic) == [["0a", "0b", "2a", "2b", "5a", "5b"]]
    everything = [f"{number}{part}" for number in range(6) for part in "ab"]
    assert read_all(bootstrap, topic, isolation="read_uncommitted") == [everything]


def test_an_open_transaction_holds_committed_readers_up(bootstrap: str, topic: str) -> None:
    slow, quick = transactional(bootstrap, new_id()), transactional(bootstrap, new_id())
    slow.begin_transaction()
    produce(slow, topic, ["slow-1"])
    slow.flush(TIMEOUT_S)
    quick.begin_transaction()
    produce(quick, topic, ["quick"])
    quick.commit_transaction(TIMEOUT_S)
    assert read_all(bootstrap, topic) == [[]]
    produce(slow, topic, ["slow-2"])
    slow.commit_transaction(TIMEOUT_S)
    assert read_all(bootstrap, topic) == [["slow-1", "quick", "slow-2"]]


def test_a_producer_is_fenced_by_the_next_with_its_id(bootstrap: str, topic: str) -> None:
    transactional_id = new_id()
    zombie = transactional(bootstrap, transactional_id)
    zombie.begin_transaction()
    produce(zombie, topic, ["lost"])
    zombie.flush(TIMEOUT_S)
    successor = transactional(bootstrap, transactional_id)
    assert read_all(bootstrap, topic) == [[]], "the open transaction was aborted"
    produce(zombie, topic, ["lost too"])
    with pytest.raises(KafkaException) as failure:
        zombie.commit_transaction(TIMEOUT_S)
    assert failure.value.args[0].fatal()
    assert failure.value.args[0].code() == KafkaError._FENCED
    successor.begin_transaction()
    produce(successor, topic, ["kept"])
    successor.commit_transaction(TIMEOUT_S)
    assert read_all(bootstrap, topic) == [["kept"]]


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_are_committed_with_their_transaction_or_not_at_all(
    bootstrap: str, new_topic: TopicFactory, commits: bool
) -> None:
    source, sink = new_topic(), new_topic()
    feeder = Producer({"bootstrap.servers": bootstrap})
    produce(feeder, source, [str(number) for number in range(10)])
    assert feeder.flush(TIMEOUT_S) == 0
    settings = {"bootstrap.servers": bootstrap, "group.id": new_id(), "enable.auto.commit": False}
    receiver = Consumer({**settings, "auto.offset.reset": "earliest"})
    receiver.assign([TopicPartition(source, 0, 0)])
    producer = transactional(bootstrap, new_id())
    producer.begin_transaction()
    for _ in range(10):
        message = receiver.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is not None
        produce(producer, sink, [value.decode() * 2])
    producer.send_offsets_to_transaction(
        receiver.position([TopicPartition(source, 0)]), receiver.consumer_group_metadata(), TIMEOUT_S
    )
    producer.commit_transaction(TIMEOUT_S) if commits else producer.abort_transaction(TIMEOUT_S)
    (committed,) = receiver.committed([TopicPartition(source, 0)], TIMEOUT_S)
    receiver.close()
    assert committed.offset == (10 if commits else -1001)
    assert read_all(bootstrap, sink) == [[str(number) * 2 for number in range(10)] if commits else []]


def test_a_transaction_of_many_batches_is_one(bootstrap: str, new_topic: TopicFactory) -> None:
    topic = new_topic(partitions=4)
    producer = transactional(bootstrap, new_id(), batch_size=2_000)
    values = [f"{number:05d}" + "." * 100 for number in range(2_000)]
    for _ in range(2):
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % 4)
        producer.commit_transaction(TIMEOUT_S)
    assert read_all(bootstrap, topic, partitions=4) == [values[number::4] * 2 for number in range(4)]


def test_a_timeout_beyond_the_limit_is_refused(bootstrap: str) -> None:
    with pytest.raises(KafkaException) as failure:
        transactional(bootstrap, new_id(), transaction_timeout_ms=900_001)
    assert failure.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
