"""A supervised cluster whose brokers follow a script: starts, restarts and stops, and their times."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from barnabas.processes.child_process import Child
from tests.support.ports import free_ports
from tests.support.process import ServerProcess

SOURCE = Path(__file__).resolve().parents[3] / "src"
SCRIPT = Path(__file__).with_name("scripted_broker.py")

RUN = """
import sys
from barnabas.cli.commands.cluster.start import _say
from barnabas.localcluster.local_cluster import LocalCluster

properties = {
    "log.dirs": sys.argv[1],
    "listeners": f"PLAINTEXT://127.0.0.1:{sys.argv[3]}",
    "zookeeper.connect": "zk:2181",
}
cluster = LocalCluster(properties, 3, broker_command=[sys.executable, "-S", sys.argv[2]])
cluster.run(lambda line: print(line, flush=True), _say)
"""


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.01)


class Supervised:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.port = free_ports(3)
        self.process: ServerProcess

    def start(self) -> None:
        self.process = ServerProcess(
            [sys.executable, "-c", RUN, str(self.directory), str(SCRIPT), str(self.port)],
            is_ready=lambda line: line.startswith("barnabas ready"),
            environment={"PYTHONPATH": str(SOURCE)},
        )

    def journal(self) -> list[str]:
        path = self.directory / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def children(self) -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process(self.process.pid).children()
        return found

    def send(self, signum: signal.Signals) -> None:
        os.kill(self.process.pid, signum)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    supervised = Supervised(tmp_path / "data")
    yield supervised
    supervised.process.kill()


def test_one_line_says_that_all_brokers_are_ready(supervised: Supervised) -> None:
    supervised.start()
    line = supervised.process.wait_ready(60)
    listeners = ",".join(
        f"PLAINTEXT://127.0.0.1:{port}" for port in range(supervised.port, supervised.port + 3)
    )
    expected = f"brokers 1,2,3, listeners {listeners}, data in {supervised.directory}, zookeeper zk:2181"
    assert line == f"barnabas ready: {expected}"
    assert sorted(supervised.journal()) == ["1 started", "2 started", "3 started"]
    output = supervised.process.output_text()
    assert all(f"[broker-{n}] barnabas ready: broker {n}" in output for n in (1, 2, 3))


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_one_broker_after_the_other(supervised: Supervised, signum: signal.Signals) -> None:
    supervised.start()
    supervised.process.wait_ready(60)
    supervised.send(signum)
    wait_until(lambda: not supervised.process.is_running)
    assert supervised.process.exit_code == 0
    assert supervised.journal()[3:] == [f"{n} {what}" for n in (1, 2, 3) for what in ("stopping", "stopped")]
    assert supervised.process.output_text().partition("stopping 3 brokers")[2].splitlines() == [
        ", one after the other",
        *(f"[supervisor] broker-{n} has stopped" for n in (1, 2, 3)),
    ]


def test_a_broker_that_crashed_is_started_again(supervised: Supervised) -> None:
    supervised.start()
    supervised.process.wait_ready(60)
    victim = next(child for child in supervised.children() if "broker-2.properties" in child.cmdline()[-1])
    victim.kill()
    wait_until(lambda: supervised.journal().count("2 started") == 2)
    wait_until(lambda: "broker-2 is back" in supervised.process.output_text())
    output = supervised.process.output_text()
    # Whatever it logged last is not the reason.
    assert "[supervisor] broker-2 was ended by SIGKILL; starting it again in 0.5 s" in output
    assert supervised.process.stop() == 0
    assert supervised.journal().count("1 started") == supervised.journal().count("3 started") == 1


def test_a_broker_that_never_comes_up_fails_the_start_and_stops_the_others(supervised: Supervised) -> None:
    (supervised.directory / "fail-2").touch()
    supervised.start()
    with pytest.raises(RuntimeError, match="instead of becoming ready"):
        supervised.process.wait_ready(60)
    assert "broker-2 ended with code 3: the disk is on fire" in supervised.process.output_text()
    journal = supervised.journal()
    for n in (1, 3):
        assert journal.count(f"{n} started") == journal.count(f"{n} stopped")


def test_a_taken_port_is_one_line(supervised: Supervised) -> None:
    with socket.create_server(("127.0.0.1", supervised.port + 1)):
        supervised.start()
        with pytest.raises(RuntimeError, match="instead of becoming ready"):
            supervised.process.wait_ready(60)
    output = supervised.process.output_text()
    (line,) = (each for each in output.splitlines() if "ClusterFailed: " in each)
    assert line.endswith(
        f"cannot listen on 127.0.0.1:{supervised.port + 1}: Address already in use, and broker 2 needs it;"
        " stop what uses it, or choose another --listener"
    )
    assert supervised.journal() == []


def test_a_broker_that_stays_down_is_named(supervised: Supervised) -> None:
    for name in ("broker-3", "broker-5", "broker-12", "broker-x"):
        (supervised.directory / name).mkdir()
    supervised.start()
    supervised.process.wait_ready(60)
    assert (
        f"[supervisor] {supervised.directory} also holds data of broker 5, 12, which stays down: partitions"
        " on it have fewer replicas, or no leader; start all with --brokers 12"
    ) in supervised.process.output_text()


def test_a_second_signal_kills(supervised: Supervised) -> None:
    (supervised.directory / "deaf-1").touch()
    supervised.start()
    supervised.process.wait_ready(60)
    children = supervised.children()
    supervised.send(signal.SIGTERM)
    wait_until(lambda: "1 stopping" in supervised.journal())
    supervised.send(signal.SIGTERM)
    wait_until(lambda: not supervised.process.is_running)
    assert not any(child.is_running() for child in children)
    assert "2 stopped" not in supervised.journal()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills children with their parent")
def test_brokers_do_not_outlive_a_killed_supervisor(supervised: Supervised) -> None:
    (supervised.directory / "deaf-3").touch()
    supervised.start()
    supervised.process.wait_ready(60)
    children = supervised.children()
    assert len(children) == 3
    supervised.process.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


@pytest.mark.parametrize(
    ("code", "said"), [(143, "zookeeper has stopped"), (1, "zookeeper ended with code 1: ready")]
)
async def test_a_jvm_that_was_told_to_stop_has_stopped(code: int, said: str) -> None:
    script = f"trap 'exit {code}' TERM; echo ready; while :; do sleep 0.05; done"
    child = await Child.start("zookeeper", ["sh", "-c", script], lambda _: None, lambda line: line == "ready")
    await child.wait_ready()
    await child.stop(60)
    assert child.farewell() == said
