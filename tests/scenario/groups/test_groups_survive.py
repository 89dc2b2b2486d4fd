"""Groups and committed offsets survive a stop and a kill of the broker, and end with their topic."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.testing.broker import RunningBroker, run_broker

DEADLINE_S = 60.0


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker(time="virtual") as running:
        running.create_topic("t", partitions=2)
        yield running


def until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        for each in consumers:
            each.poll(0.05)


def member(broker: RunningBroker, protocol: str, **settings: Any) -> Consumer:
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


def produce(broker: RunningBroker, count: int) -> None:
    sender = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        sender.produce("t", str(number).encode(), partition=number % 2)
    assert sender.flush(DEADLINE_S) == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_goes_on_after_a_restart(broker: RunningBroker, protocol: str, end: str) -> None:
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
    broker.restart()
    assert broker.committed("g") == {("t", 0): 5, ("t", 1): 5}
    seen.clear()
    produce(broker, 10)
    until(read)
    assert sorted(map(int, seen)) == list(range(10))
    assert len(broker.wait_for(group="g").members) == 1
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


def test_a_member_that_was_killed_is_replaced(broker: RunningBroker) -> None:
    command = [sys.executable, "-c", MEMBER, broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"joined\n"
        process.kill()
    broker.time.advance("7s")
    heir = member(broker, "classic")
    until(lambda: len(heir.assignment()) == 2, heir)
    heir.close()


def test_a_topic_that_was_deleted_leaves_no_offsets_behind(broker: RunningBroker) -> None:
    outsider = member(broker, "classic")
    outsider.unsubscribe()
    outsider.assign([TopicPartition("t", 0)])
    outsider.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
    assert broker.committed("g") == {("t", 0): 7}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.delete_topics(["t"])["t"].result(DEADLINE_S)
    assert broker.committed("g") == {}
    outsider.close()
