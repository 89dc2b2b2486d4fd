"""`barnabas start --secure`, as people run it: what it prints can be typed, and clients take its files."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from barnabas.cli.main import cli
from barnabas.config.properties import read_properties
from tests.clients.tools import TOPICS, tool
from tests.peers.kafka import require_kafka
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.waiting import eventually
from tests.support.zookeeper import require_zookeeper

SOURCE = Path(__file__).resolve().parents[3] / "src"
ENVIRONMENT = {"PYTHONPATH": str(SOURCE)}
TIMEOUT_S = 120.0

Start = Callable[..., ServerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `barnabas start --secure` on one data directory; its last line says that it is ready."""
    started: list[ServerProcess] = []

    def run(*arguments: str) -> ServerProcess:
        command = [
            sys.executable,
            "-m",
            "barnabas",
            "start",
            "--data-dir",
            str(tmp_path / "data"),
            *arguments,
        ]
        process = ServerProcess(
            command, is_ready=lambda line: "barnabas produce" in line, environment=ENVIRONMENT
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()


def barnabas(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def type_what_is_printed(process: ServerProcess) -> None:
    """The commands below `try:`, as they stand."""
    lines = [line.strip() for line in process.output_text().splitlines() if line.startswith("  ")]
    create, allow, produce = (shlex.split(line.rpartition("barnabas ")[2]) for line in lines[-3:])
    for command in (create, allow):
        done = barnabas(*command)
        assert done.exit_code == 0, done.output
    command = [sys.executable, "-m", "barnabas", *produce]

    def is_written() -> bool:
        """Every broker knows the rule soon; the one that is asked first may not yet."""
        done = subprocess.run(
            command, input=b"hello\n", env={**os.environ, **ENVIRONMENT}, timeout=TIMEOUT_S,
            stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        assert not done.returncode or b"TOPIC_AUTHORIZATION_FAILED" in done.stderr, done.stderr
        return not done.returncode

    eventually(is_written, "the rule reaches the broker that is asked first", timeout_s=TIMEOUT_S)


def librdkafka(tmp_path: Path, user: str, **more: Any) -> dict[str, Any]:
    file = tmp_path / "data" / "secure" / f"{user}.librdkafka.properties"
    lines = (line for line in file.read_text().splitlines() if not line.startswith("#"))
    settings = dict(line.split("=", 1) for line in lines)
    return {**settings, "log_level": 0, **more}


def consumed(tmp_path: Path, user: str) -> bytes:
    """The first record of the topic, whichever partition it is in."""
    consumer = Consumer(librdkafka(tmp_path, user, **{"group.id": "readers"}))
    consumer.assign([TopicPartition("orders", each, OFFSET_BEGINNING) for each in range(3)])
    try:
        record = consumer.poll(TIMEOUT_S)
        assert record is not None
        if record.error():
            raise KafkaException(record.error())
        value = record.value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


def test_a_secured_broker_and_its_next_start(start: Start, tmp_path: Path) -> None:
    listener = ("--secure", "--listener", f"SASL_SSL://127.0.0.1:{free_port()}")
    process = start(*listener)
    process.wait_ready(TIMEOUT_S)
    type_what_is_printed(process)
    assert consumed(tmp_path, "admin") == b"hello"
    with pytest.raises(KafkaException, match=r"(TOPIC|GROUP)_AUTHORIZATION_FAILED"):
        consumed(tmp_path, "alice")
    secrets = (tmp_path / "data" / "secure" / "secrets.properties").read_text()
    assert process.stop() == 0

    plain = barnabas("start", "--data-dir", str(tmp_path / "data"))
    assert plain.exit_code == 2
    assert "start it with --secure" in plain.output

    again = start(*listener)
    again.wait_ready(TIMEOUT_S)
    assert (tmp_path / "data" / "secure" / "secrets.properties").read_text() == secrets
    assert "orders" in AdminClient(librdkafka(tmp_path, "alice")).list_topics(timeout=TIMEOUT_S).topics
    passwords = {value for value in read_properties(secrets).values() if value != "true"}
    for each in (process, again):
        assert not any(password in each.output_text() for password in passwords)


@pytest.mark.java
@pytest.mark.rest
def test_kafkas_own_tools_take_the_file(start: Start, tmp_path: Path) -> None:
    require_kafka()
    port = free_port()
    start("--secure", "--listener", f"SASL_SSL://127.0.0.1:{port}").wait_ready(TIMEOUT_S)
    settings = ("--command-config", str(tmp_path / "data" / "secure" / "admin.properties"))
    cluster = ("--bootstrap-server", f"127.0.0.1:{port}")
    assert "Created topic orders" in tool(TOPICS, *cluster, *settings, "--create", "--topic", "orders")
    assert tool(TOPICS, *cluster, *settings, "--list").split() == ["orders"]


def arguments_of_three(first: int) -> list[str]:
    arguments = ["--secure", "--brokers", "3", "--listener", f"SASL_SSL://127.0.0.1:{first}"]
    return [*arguments, "--set", "default.replication.factor=3", "--set", "min.insync.replicas=2"]


@pytest.mark.rest
def test_three_secured_brokers(start: Start, tmp_path: Path) -> None:
    first = free_port()
    process = start(*arguments_of_three(first))
    process.wait_ready(TIMEOUT_S)
    type_what_is_printed(process)
    assert consumed(tmp_path, "admin") == b"hello"
    assert (tmp_path / "data" / "coordination").stat().st_mode & 0o777 == 0o700
    assert process.stop(TIMEOUT_S) == 0
    start_again(start, tmp_path, first)


def start_again(start: Start, tmp_path: Path, first: int) -> None:
    """The users and their rights are still there."""
    start(*arguments_of_three(first)).wait_ready(TIMEOUT_S)
    producer = Producer(librdkafka(tmp_path, "alice", acks="all"))
    producer.produce("orders", b"again")
    assert producer.flush(TIMEOUT_S) == 0
    metadata = AdminClient(librdkafka(tmp_path, "admin")).list_topics(timeout=TIMEOUT_S)
    assert sorted(each.port for each in metadata.brokers.values()) == [first, first + 1, first + 2]


@pytest.mark.rest
def test_a_secured_home_with_a_zookeeper_keeps_it_to_itself(start: Start, tmp_path: Path) -> None:
    require_zookeeper()
    for name in ("zookeeper/version-2", "secure"):  # as an earlier version has left them
        (tmp_path / "data" / name).mkdir(parents=True)
    first = free_port()
    process = start(*arguments_of_three(first))
    process.wait_ready(TIMEOUT_S)
    type_what_is_printed(process)
    assert consumed(tmp_path, "admin") == b"hello"

    zookeeper = next(
        line.partition("zookeeper ")[2].strip()
        for line in process.output_text().splitlines()
        if line.startswith("barnabas ready")
    )
    stranger = KazooClient(zookeeper)
    stranger.start(TIMEOUT_S)
    with pytest.raises(NoAuthError):
        stranger.get("/config/users/admin")
    for path in ("/config/users/mallory", "/mallory"):
        with pytest.raises(NoAuthError):
            stranger.create(path)
    for path in ("/controller", "/controller_epoch"):
        with pytest.raises(NoAuthError):
            stranger.delete(path)
    with pytest.raises(NoAuthError):
        stranger.set_acls("/", OPEN_ACL_UNSAFE)
    stranger.stop()
    stranger.close()

    assert process.stop(TIMEOUT_S) == 0
    start_again(start, tmp_path, first)
