"""Groups and transactions through Python's clients and kcat: one plain round each.

They wait until the broker advertises what they need, and are reported as not yet before that.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from tests.clients.features import BY_NAME, advertised_apis
from tests.support.broker import Broker

TIMEOUT_S = 60.0
KEPT = [b"kept", b"kept", b"last", b"last"]


@pytest.fixture(autouse=True)
def _advertised(request: pytest.FixtureRequest, broker: Broker) -> None:
    apis = advertised_apis(broker.host, broker.port)
    for mark in request.node.iter_markers("feature"):
        if not BY_NAME[mark.args[0]].needs <= apis:
            pytest.xfail("the broker does not advertise what this needs")


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def two_rounds(bootstrap: str, topic: str, read_and_commit: Callable[[int], list[bytes]]) -> None:
    """The second member starts where the first one committed."""
    send(bootstrap, topic, b"0", b"1", b"2")
    assert read_and_commit(3) == [b"0", b"1", b"2"]
    send(bootstrap, topic, b"3")
    assert read_and_commit(1) == [b"3"]


@pytest.mark.client("confluent-kafka")
@pytest.mark.feature("group")
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_confluent_kafka_subscribes_and_commits(bootstrap: str, topic: str, strategy: str) -> None:
    confluent_rounds(bootstrap, topic, {"partition.assignment.strategy": strategy})


@pytest.mark.client("confluent-kafka")
@pytest.mark.feature("group-consumer-protocol")
def test_confluent_kafka_subscribes_by_the_new_protocol(bootstrap: str, topic: str) -> None:
    confluent_rounds(bootstrap, topic, {"group.protocol": "consumer"})


def confluent_rounds(bootstrap: str, topic: str, settings: dict[str, str]) -> None:
    common = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}

    def read_and_commit(count: int) -> list[bytes]:
        consumer = Consumer({**common, "auto.offset.reset": "earliest", **settings})
        consumer.subscribe([topic])
        values: list[bytes] = []
        while len(values) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"silence after {len(values)} of {count} records"
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
        consumer.commit(asynchronous=False)
        consumer.close()
        return values

    two_rounds(bootstrap, topic, read_and_commit)


@pytest.mark.client("confluent-kafka")
@pytest.mark.feature("transaction")
def test_confluent_kafka_hides_what_it_aborted(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for value in (b"kept", b"lost", b"last"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.produce(topic, value)
        (producer.abort_transaction if value == b"lost" else producer.commit_transaction)(TIMEOUT_S)
    assert read_committed(bootstrap, topic) == KEPT


def read_committed(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < len(KEPT):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"silence after {values}"
        if message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


@pytest.mark.client("kafka-python")
@pytest.mark.feature("group")
def test_kafka_python_subscribes_and_commits(bootstrap: str, topic: str) -> None:
    def read_and_commit(count: int) -> list[bytes]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        values: list[bytes] = []
        while len(values) < count:
            answered = consumer.poll(timeout_ms=TIMEOUT_S * 1_000)
            values += [record.value for batch in answered.values() for record in batch]
        consumer.commit()
        assert consumer.committed(PythonPartition(topic, 0)) == consumer.position(PythonPartition(topic, 0))
        consumer.close()
        return values

    two_rounds(bootstrap, topic, read_and_commit)


@pytest.mark.client("kafka-python")
@pytest.mark.feature("transaction")
def test_kafka_python_hides_what_it_aborted(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for value in (b"kept", b"lost", b"last"):
        producer.begin_transaction()
        for _ in range(2):
            producer.send(topic, value).get(TIMEOUT_S)
        (producer.abort_transaction if value == b"lost" else producer.commit_transaction)()
    producer.close()
    assert read_committed(bootstrap, topic) == KEPT


@pytest.mark.client("aiokafka")
@pytest.mark.feature("group")
async def test_aiokafka_subscribes_and_commits(bootstrap: str, topic: str) -> None:
    async def read_and_commit(count: int) -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        values = [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(count)]
        await consumer.commit()
        await consumer.stop()
        return values

    await asyncio.to_thread(send, bootstrap, topic, b"0", b"1", b"2")
    assert await read_and_commit(3) == [b"0", b"1", b"2"]
    await asyncio.to_thread(send, bootstrap, topic, b"3")
    assert await read_and_commit(1) == [b"3"]


@pytest.mark.client("aiokafka")
@pytest.mark.feature("transaction")
async def test_aiokafka_hides_what_it_aborted(bootstrap: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    await producer.start()
    for value in (b"kept", b"lost", b"last"):
        await producer.begin_transaction()
        for _ in range(2):
            await producer.send_and_wait(topic, value)
        await (producer.abort_transaction() if value == b"lost" else producer.commit_transaction())
    await producer.stop()
    assert await asyncio.to_thread(read_committed, bootstrap, topic) == KEPT


@pytest.mark.client("kcat")
@pytest.mark.feature("group")
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_reads_as_a_member(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, b"0", b"1", b"2")
    command = [
        "kcat",
        "-b",
        bootstrap,
        "-q",
        "-c",
        "3",
        "-X",
        "auto.offset.reset=earliest",
        "-G",
        topic,
        topic,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n1\n2\n"), done.stderr
