"""`barnabas start --brokers 3` without Java: the brokers share a store, and processes are killed.

Sessions last two minutes here. So what happens sooner does not happen because one has expired.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.files_page import unlisted
from tests.support.process import ServerProcess
from tests.support.waiting import ATTEMPT_S, PATIENCE_S, eventually

SOURCE = Path(__file__).resolve().parents[3] / "src"
SESSION_TIMEOUT_MS = 120_000


class ThreeBrokers:
    """The command, as a user starts it on a machine without Java."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: ServerProcess
        self.bootstrap = ""

    def start(self) -> str:
        arguments = ["--brokers", "3", "--data-dir", str(self.directory)]
        arguments += ["--listener", "PLAINTEXT://127.0.0.1:0"]
        for setting in (
            f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}",
            "default.replication.factor=3",
            "min.insync.replicas=2",
        ):
            arguments += ["--set", setting]
        self.process = ServerProcess(
            [sys.executable, "-m", "barnabas", "start", *arguments],
            is_ready=lambda line: line.startswith("barnabas ready: brokers"),
            environment={"PYTHONPATH": str(SOURCE), "PATH": "", "JAVA_HOME": ""},
        )
        line = self.process.wait_ready(PATIENCE_S)
        self.bootstrap = ",".join(re.findall(r"PLAINTEXT://([\d.]+:\d+)", line))
        return line

    def child(self, word: str) -> psutil.Process:
        children = psutil.Process(self.process.pid).children()
        (found,) = (each for each in children if any(word in part for part in each.cmdline()))
        return found

    def broker(self, number: int) -> psutil.Process:
        return self.child(f"broker-{number}.properties")

    @property
    def store(self) -> psutil.Process:
        return self.child("store_process")

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str) -> None:
        """While the store is away a broker answers REQUEST_TIMED_OUT, and the topic may be there."""

        def is_there() -> bool:
            admin = self.admin()  # alive until the answer
            (made,) = admin.create_topics([NewTopic(topic, 3, 3)]).values()
            try:
                made.result(ATTEMPT_S)
            except KafkaException as failure:
                return bool(failure.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
            return True

        self.until(is_there, f"{topic} is created")

    def produce(self, topic: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        for number in range(count):
            producer.produce(topic, str(number).encode())
        assert producer.flush(PATIENCE_S) == 0

    def count(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none", "log_level": 0})
        try:
            partitions = self.admin().list_topics(topic, timeout=ATTEMPT_S).topics[topic].partitions
            ends = [_end(consumer, topic, number) for number in partitions]
        finally:
            consumer.close()
        return sum(ends)

    def leaders(self, topic: str) -> set[int]:
        partitions = self.admin().list_topics(topic, timeout=ATTEMPT_S).topics[topic].partitions
        return {each.leader for each in partitions.values()}

    def is_whole(self, topic: str) -> bool:
        partitions = self.admin().list_topics(topic, timeout=ATTEMPT_S).topics[topic].partitions.values()
        return all(len(each.isrs) == 3 and each.leader > 0 for each in partitions)

    def until(self, look: Callable[[], object], what: str) -> None:
        eventually(look, what, report=self.process.output_text)


def _end(consumer: Consumer, topic: str, partition: int) -> int:
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ATTEMPT_S)
    return int(high)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeBrokers]:
    three = ThreeBrokers(tmp_path / "data")
    yield three
    three.process.kill()


@pytest.mark.slow
def test_three_brokers_need_no_java_and_survive_a_killed_broker(three: ThreeBrokers) -> None:
    line = three.start()
    assert line.endswith(f"coordination store in {three.directory / 'coordination'}")
    assert len(psutil.Process(three.process.pid).children(recursive=True)) == 4
    three.create("orders")
    three.produce("orders", 100)
    three.until(lambda: three.leaders("orders") == {1, 2, 3}, "each broker leads")
    os.kill(three.broker(2).pid, signal.SIGKILL)
    # Two minutes before the session would expire.
    three.until(lambda: 2 not in three.leaders("orders"), "the others lead")
    three.until(lambda: "broker-2 is back" in three.process.output_text(), "it is started again")
    three.until(lambda: three.is_whole("orders"), "all replicas are in sync")
    three.produce("orders", 100)
    three.until(lambda: three.count("orders") == 200, "nothing is lost")
    assert unlisted(three.directory) == [], "docs/FILES.md lists every file"
    assert three.process.stop() == 0
    lines = three.process.output_text().partition("[supervisor] stopping")[2].splitlines()
    # On a busy machine a follower may notice the stop by its connection, before the controller tells it.
    assert [each for each in lines if "replica fetcher: fetching from" not in each] == [
        " 3 brokers, one after the other",
        *(f"[supervisor] {name} has stopped" for name in ("broker-1", "broker-2", "broker-3", "store")),
    ]


@pytest.mark.slow
def test_a_killed_store_comes_back_and_no_session_is_lost(three: ThreeBrokers) -> None:
    three.start()
    three.create("orders")
    for round_ in range(3):
        os.kill(three.store.pid, signal.SIGKILL)
        three.produce("orders", 100)  # needs no store
        three.create(f"later-{round_}")
        three.until(lambda: three.is_whole("orders"), "all replicas are in sync")
    three.until(
        lambda: three.process.output_text().count("[supervisor] store is back") == 3, "each return is a line"
    )
    assert "has ended; a new session follows" not in three.process.output_text()
    assert three.count("orders") == 300
    assert three.process.stop() == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills children with their parent")
def test_a_cluster_that_was_killed_as_a_whole_starts_at_once(three: ThreeBrokers) -> None:
    three.start()
    three.create("orders")
    three.produce("orders", 100)
    three.process.kill()
    # The sessions of the dead brokers have two minutes left, and nobody waits for them.
    three.start()
    three.until(lambda: three.is_whole("orders"), "all replicas are in sync")
    assert three.count("orders") == 100
    assert "belongs to a session that has not ended" not in three.process.output_text()
    assert three.process.stop() == 0


@pytest.mark.slow
def test_a_stopped_store_that_goes_on_has_lost_no_session(three: ThreeBrokers) -> None:
    three.start()
    three.create("orders")
    three.produce("orders", 10)
    three.until(lambda: three.is_whole("orders"), "all replicas are in sync")
    store = three.store
    store.suspend()
    three.produce("orders", 100)
    store.resume()
    three.create("later")
    assert three.count("orders") == 110
    assert "has ended; a new session follows" not in three.process.output_text()
    assert three.process.stop() == 0
