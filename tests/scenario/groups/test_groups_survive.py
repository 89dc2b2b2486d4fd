"""Groups and committed offsets survive a stop and a kill of the broker, and end with their topic."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.broker import BarnabasBroker, running
from tests.support.fixtures import create_topic

DEADLINE_S = 60.0


def broker_in(directory: Path) -> BarnabasBroker:
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}
    return BarnabasBroker(directory, settings=settings)


def until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        for each in consumers:
            each.poll(0.05)


def member(broker: BarnabasBroker, protocol: str, **settings: Any) -> Consumer:
    config: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
        "reconnect.backoff.max.ms": 200,
    }
    if protocol == "classic":
        config |= {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300}
    receiver = Consumer(config | settings)
    receiver.subscribe(["t"])
    return receiver


def produce(broker: BarnabasBroker, count: int) -> None:
    sender = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        sender.produce("t", str(number).encode(), partition=number % 2)
    assert sender.flush(DEADLINE_S) == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_goes_on_after_a_restart(tmp_path: Path, protocol: str, end: str) -> None:
    broker = broker_in(tmp_path)
    with running(broker):
        create_topic(broker, "t", 2)
        produce(broker, 10)
        receiver = member(broker, protocol)
        seen: list[str] = []

        def read() -> bool:
            message = receiver.poll(0.1)
            if message is not None and message.error() is None:
                seen.append((message.value() or b"").decode())
            return len(seen) >= 10

        until(read)
        receiver.commit(asynchronous=False)
        getattr(broker, end)()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        wanted = ConsumerGroupTopicPartitions("g")
        found = admin.list_consumer_group_offsets([wanted])["g"].result(DEADLINE_S)
        assert {each.partition: each.offset for each in found.topic_partitions} == {0: 5, 1: 5}
        seen.clear()
        produce(broker, 10)
        until(read)
        assert sorted(map(int, seen)) == list(range(10))
        described = admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S)
        assert len(described.members) == 1
        receiver.close()


MEMBER = """
import sys
from confluent_kafka import Consumer
member = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "session.timeout.ms": 6000})
member.subscribe(["t"])
while len(member.assignment()) < 2:
    member.poll(0.1)
print("joined", flush=True)
while True:
    member.poll(0.1)
"""


def test_a_member_that_was_killed_is_replaced(tmp_path: Path) -> None:
    broker = broker_in(tmp_path)
    with running(broker):
        create_topic(broker, "t", 2)
        command = [sys.executable, "-c", MEMBER, broker.bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"joined\n"
            process.kill()
        heir = member(broker, "classic")
        until(lambda: len(heir.assignment()) == 2, heir)
        heir.close()


def test_a_topic_that_was_deleted_leaves_no_offsets_behind(tmp_path: Path) -> None:
    broker = broker_in(tmp_path)
    with running(broker):
        create_topic(broker, "t", 2)
        outsider = member(broker, "classic")
        outsider.unsubscribe()
        outsider.assign([TopicPartition("t", 0)])
        outsider.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.delete_topics(["t"])["t"].result(DEADLINE_S)
        wanted = ConsumerGroupTopicPartitions("g")
        found = admin.list_consumer_group_offsets([wanted])["g"].result(DEADLINE_S)
        assert found.topic_partitions == []
        outsider.close()
