"""`barnabas zookeeper start`, and `barnabas start` with a ZooKeeper of its own, as people run them."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from barnabas.processes import zookeeper_process
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.wire import WireConnection, broker_count
from tests.support.zookeeper import require_zookeeper

SOURCE = Path(__file__).resolve().parents[3] / "src"

Run = Callable[[Sequence[str]], ServerProcess]


@pytest.fixture
def run() -> Iterator[Run]:
    """Starts `barnabas` with arguments, and kills what is left of it in the end."""
    require_zookeeper()
    started: list[ServerProcess] = []

    def start(arguments: Sequence[str]) -> ServerProcess:
        process = ServerProcess(
            [sys.executable, "-m", "barnabas", *arguments],
            is_ready=lambda line: line.startswith(("zookeeper ready", "barnabas ready")),
            environment={"PYTHONPATH": str(SOURCE)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.01)


def servers_under(process: ServerProcess) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if zookeeper_process.MAIN_CLASS in child.cmdline()]


def test_a_zookeeper_says_that_it_is_ready_serves_and_stops(run: Run, tmp_path: Path) -> None:
    port = free_port()
    process = run(["zookeeper", "start", "--port", str(port), "--data-dir", str(tmp_path / "zk")])
    assert process.wait_ready(60) == f"zookeeper ready: 127.0.0.1:{port}, data in {tmp_path / 'zk'}"
    client = KazooClient(f"127.0.0.1:{port}")
    client.start(60)
    client.create("/kept", b"data")
    client.stop()
    client.close()
    (server,) = servers_under(process)
    assert process.stop() == 0
    assert not server.is_running()
    assert {path.name for path in (tmp_path / "zk").iterdir()} >= {"version-2", "zoo.cfg"}


def test_its_data_outlives_it(run: Run, tmp_path: Path) -> None:
    port = free_port()
    for data in (None, b"data"):
        process = run(["zookeeper", "start", "--port", str(port), "--data-dir", str(tmp_path)])
        process.wait_ready(60)
        client = KazooClient(f"127.0.0.1:{port}")
        client.start(60)
        if data is None:
            client.create("/kept", b"data")
        else:
            assert client.get("/kept")[0] == data
        client.stop()
        client.close()
        process.stop()


def test_a_port_that_is_taken_is_named(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = run(["zookeeper", "start", "--port", str(port), "--data-dir", str(tmp_path)])
        wait_until(lambda: process.exit_code is not None)
    assert process.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in process.output_text()


def test_a_directory_has_one_server(run: Run, tmp_path: Path) -> None:
    arguments = ["zookeeper", "start", "--port", "0", "--data-dir", str(tmp_path)]
    run(arguments).wait_ready(60)
    second = run(arguments)
    wait_until(lambda: second.exit_code is not None)
    assert second.exit_code == 1
    assert "another ZooKeeper is running on" in second.output_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills children with their parent")
def test_a_killed_command_takes_its_server_along(run: Run, tmp_path: Path) -> None:
    process = run(["zookeeper", "start", "--port", "0", "--data-dir", str(tmp_path)])
    process.wait_ready(60)
    servers = servers_under(process)
    process.kill()
    _, alive = psutil.wait_procs(servers, timeout=60)
    assert alive == []


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(zookeeper_process.CannotRunZooKeeper, match="needs Java 17"):
        zookeeper_process.find_java()


def test_a_missing_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(zookeeper_process.CannotRunZooKeeper, match=r"\[zookeeper,spark\]"):
        zookeeper_process.find_jars()


def _serves(line: str) -> bool:
    listeners = re.findall(r"PLAINTEXT://127\.0\.0\.1:(\d+)", line)
    assert listeners, line
    for port in listeners:
        with WireConnection("127.0.0.1", int(port)) as connection:
            if connection.create_topic(f"made-by-{port}") != 0:
                return False
    return True


def test_a_broker_brings_its_own_zookeeper(run: Run, tmp_path: Path) -> None:
    arguments = ["--data-dir", str(tmp_path), "--listener", "PLAINTEXT://127.0.0.1:0"]
    process = run(["start", "--zookeeper", "local", *arguments])
    assert _serves(process.wait_ready(60))
    (server,) = servers_under(process)
    assert (tmp_path / "zookeeper" / "version-2").is_dir()
    assert process.stop() == 0
    assert not server.is_running()


def test_three_brokers_take_one_command(run: Run, tmp_path: Path) -> None:
    arguments = ["--data-dir", str(tmp_path), "--listener", "PLAINTEXT://127.0.0.1:0"]
    process = run(["start", "--brokers", "3", "--zookeeper", "local", *arguments])
    line = process.wait_ready(120)
    assert line.startswith("barnabas ready: brokers 1,2,3, listeners ")
    host, port = re.findall(r"PLAINTEXT://([\d.]+):(\d+)", line)[0]
    wait_until(lambda: broker_count(host, int(port)) == 3)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == 4
    assert process.stop() == 0
    assert not any(child.is_running() for child in children)


def test_a_cluster_takes_one_command_and_survives_its_brokers(run: Run, tmp_path: Path) -> None:
    arguments = ["--data-dir", str(tmp_path), "--listener", "PLAINTEXT://127.0.0.1:0"]
    arguments += ["--set", "zookeeper.session.timeout.ms=1000"]
    process = run(["start", "--brokers", "1", "--zookeeper", "local", *arguments])
    assert _serves(process.wait_ready(60))
    children = psutil.Process(process.pid).children()
    (server,) = servers_under(process)
    (broker,) = (child for child in children if child.pid != server.pid)
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: "broker-1 is back" in process.output_text())
    assert process.stop() == 0
    assert not server.is_running()
    assert (tmp_path / "broker-1" / "meta.properties").is_file()
