"""Lives of one broker: restarts, kills, pauses and snapshots, with clients that stay connected."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.testing.broker import RunningBroker, run_broker


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as broker:
        yield broker


def connected(broker: RunningBroker) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 10, "log_level": 0})


def test_a_restarted_broker_keeps_its_address_its_data_and_its_rules(broker: RunningBroker) -> None:
    topic, bootstrap = broker.create_topic(), broker.bootstrap
    producer = connected(broker)
    producer.produce(topic, b"one")
    assert producer.flush(30) == 0
    rule = broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
    broker.restart()
    assert broker.bootstrap == bootstrap
    producer.produce(topic, b"two")
    assert producer.flush(30) == 0
    assert rule.hits == 1
    assert broker.values(topic) == [b"one", b"two"]


def test_a_killed_broker_has_what_it_acknowledged(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    producer = connected(broker)
    producer.produce(topic, b"one")
    assert producer.flush(30) == 0
    broker.kill()
    assert not broker.is_running
    with pytest.raises(RuntimeError, match="does not run now"):
        broker.records(topic)
    producer.produce(topic, b"two")
    broker.restart()
    assert producer.flush(30) == 0
    assert broker.values(topic) == [b"one", b"two"]


def test_a_paused_broker_answers_nothing_and_then_everything(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    producer = connected(broker)
    broker.pause()
    broker.pause()
    producer.produce(topic, b"late")
    assert producer.flush(0.3) == 1
    with pytest.raises(RuntimeError, match="is paused"):
        broker.records(topic)
    broker.resume()
    assert producer.flush(30) == 0


def test_it_ends_while_it_is_paused() -> None:
    with run_broker() as broker:
        broker.pause()
    with run_broker() as broker:
        broker.pause()
        broker.kill()
    with run_broker() as broker:
        broker.disk.stall()


def test_tests_go_back_to_a_snapshot(broker: RunningBroker, tmp_path: Path) -> None:
    topic = broker.create_topic()
    producer = connected(broker)
    producer.produce(topic, b"kept", key=b"k")
    assert producer.flush(30) == 0
    snapshot = broker.snapshot(tmp_path / "kept")
    for _ in range(2):
        producer.produce(topic, b"undone", key=b"k")
        assert producer.flush(30) == 0
        assert broker.table(topic) == {b"k": b"undone"}
        broker.restore(snapshot)
        assert broker.table(topic) == {b"k": b"kept"}
    with run_broker(snapshot=snapshot) as other:
        assert other.values(topic) == [b"kept"]
    with pytest.raises(FileNotFoundError, match="there is no snapshot"):
        broker.restore(tmp_path / "nothing")
    assert broker.values(topic) == [b"kept"], "it still runs"


def test_a_snapshot_without_all_log_directories_is_refused(tmp_path: Path) -> None:
    directories = {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    with run_broker(directories, data_dir=tmp_path / "one") as broker:
        bootstrap = broker.bootstrap
        for work in (broker.snapshot, lambda: broker.restore(tmp_path)):
            with pytest.raises(RuntimeError, match=r"log\.dirs names .*two too"):
                work()
        assert broker.bootstrap == bootstrap
        assert broker.create_topic(), "it still runs"


def test_the_log_of_the_broker_is_kept_for_the_test(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("noted")
    assert any("1 new partitions are brought online" in line for line in broker.log_lines())
    broker.disk.fail("EIO")
    broker.faults.add(action="rebalance")
    producer = connected(broker)
    producer.produce("noted", b"lost")
    producer.flush(1)
    assert caplog.text.count("goes offline") == 1
    with run_broker() as other:
        other.create_topic("elsewhere")
        assert not any("goes offline" in line for line in other.log_lines())


def test_a_program_sees_the_log_as_without_the_kit() -> None:
    program = (
        "from barnabas.testing.broker import run_broker\n"
        "import logging\n"
        "with run_broker() as broker:\n"
        "    broker.create_topic()\n"
        "    assert broker.log_lines()\n"
        "    logging.getLogger('barnabas.client').warning('seen')\n"
        "    logging.getLogger('barnabas.client').info('not seen')\n"
        "assert logging.getLogger('barnabas').propagate\n"
        "assert not logging.getLogger('barnabas').handlers\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "seen\n"


def test_a_forked_process_neither_hangs_nor_holds_up_the_broker() -> None:
    """A child of `multiprocessing` has copies of all sockets, and none of the threads."""
    program = """
import os, signal, socket, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
from barnabas.testing.broker import run_broker

with run_broker(time="virtual") as broker:
    broker.create_topic("orders")
    host, port = broker.bootstrap.split(":")
    connected = socket.create_connection((host, int(port)), timeout=30)
    broker.create_topic("accepted")  # the broker has the connection by then
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for ask in (
            lambda: broker.records("orders"), lambda: broker.time.advance("1s"), broker.pause, broker.restart,
        ):
            try:
                ask()
            except RuntimeError as error:
                os.write(writer, str(error).encode() + b"\\n")
        os.write(writer, b"end\\n")
        signal.pause()
    with os.fdopen(reader) as told:
        print(*iter(told.readline, "end\\n"))
    broker.restart()
    print("connection closed:", connected.recv(1) == b"")
    print(broker.records("orders"))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.count("in the process that forked this one") == 4
    assert "connection closed: True\n[]\n" in done.stdout
