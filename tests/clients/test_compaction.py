"""A compacted topic, seen by a real consumer: it converges to the last value of each key."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.support.broker import Broker, running
from tests.support.fixtures import chosen_broker, create_topic

TOPIC = "latest"
KEYS = 20
ROUNDS = 60
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cleaning(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose cleaner looks round all the time."""
    directory: Path = tmp_path_factory.mktemp("cleaning")
    with running(chosen_broker(request.config, directory, log_cleaner_backoff_ms=50)) as broker:
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": str(1 << 20),
            "min.cleanable.dirty.ratio": "0.01",
        }
        create_topic(broker, TOPIC, configs=configs)
        yield broker


def write(broker: Broker) -> dict[bytes, bytes]:
    """Many small batches, so that segments roll; what each key was last set to."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    last: dict[bytes, bytes] = {}
    for number in range(ROUNDS):
        for key in range(KEYS):
            last[b"key-%d" % key] = b"%d" % number + b"." * 2_000
            producer.produce(TOPIC, last[b"key-%d" % key], b"key-%d" % key)
        assert producer.flush(TIMEOUT_S) == 0
    return last


def read_all(broker: Broker) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_S)[1]
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes, bytes | None]] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not found or found[-1][0] < end - 1:
        assert time.monotonic() < deadline, "the end was not reached"
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            offset, key = message.offset(), message.key()
            assert offset is not None
            assert key is not None
            found.append((offset, key, message.value()))
    consumer.close()
    return found


def test_a_compacted_topic_converges(cleaning: Broker) -> None:
    last = write(cleaning)
    deadline = time.monotonic() + TIMEOUT_S
    while len(found := read_all(cleaning)) > KEYS * ROUNDS // 2:
        assert time.monotonic() < deadline, "the topic does not become smaller"
    assert {key: value for _, key, value in found} == last
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert found[-1][0] == KEYS * ROUNDS - 1
