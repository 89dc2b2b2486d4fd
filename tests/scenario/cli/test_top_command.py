"""`barnabas top`: one picture on a pipe, and the live view in a terminal, with its keys."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.support import progress
from barnabas.cli.support.session import Bootstrap
from barnabas.cli.top import source
from barnabas.cli.top.live import run_once
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.producer.producer import Producer
from barnabas.config.derived import default_log_directory
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import TopicPartition
from barnabas.inspection import client
from barnabas.inspection.wire import SOCKET_NAME
from tests.support.broker import BarnabasBroker, running
from tests.support.waiting import PATIENCE_S, eventually_async

LINES, COLUMNS = 40, 160


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasBroker]:
    with running(BarnabasBroker(tmp_path_factory.mktemp("top") / "data")) as started:
        assert isinstance(started, BarnabasBroker)
        yield started


@pytest.fixture
async def filled(broker: BarnabasBroker) -> BarnabasBroker:
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        if "orders" not in {topic.name for topic in await admin.list_topics()}:
            await admin.create_topics([NewTopic("orders", 1, 1), NewTopic("void", 1, 1)])
            for _ in range(7):
                await producer.publish("orders", b"x" * 50)
            await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 2})

    async def is_served() -> bool:
        return (broker.data_directory / SOCKET_NAME).is_socket()

    await eventually_async(is_served)
    return broker


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "barnabas", "top", *arguments]


@pytest.mark.parametrize("means", ["socket", "client"])
def test_one_picture_is_printed(filled: BarnabasBroker, means: str) -> None:
    where = (
        ("--data-dir", str(filled.data_directory)) if means == "socket" else ("--bootstrap", filled.bootstrap)
    )
    done = subprocess.run(
        command("--once", *where), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (orders,) = [line.split() for line in lines if line.strip().startswith("orders ")]
    assert orders[1:3] == ["1", "7"]
    (billing,) = [line.split() for line in lines if line.strip().startswith("billing ")]
    assert billing[1] == "Empty"
    assert "5" in billing[2:]
    assert lines[-1].strip() == ("local socket" if means == "socket" else "client")


def test_a_directory_without_a_broker_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    done = subprocess.run(
        command("--once", "--data-dir", str(empty)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode != 0
    assert f"no broker runs on {empty}" in done.stderr


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a broker that hangs: the kernel takes connections to its port and its socket."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(client, "TIMEOUT_S", 10 * PATIENCE_S)
    monkeypatch.setattr(source, "SOCKET_PATIENCE_S", 0.1)
    default_log_directory().mkdir()
    with socket.socket(socket.AF_UNIX) as inspection, socket.create_server(("127.0.0.1", 0)) as listener:
        inspection.bind(str(default_log_directory() / SOCKET_NAME))
        inspection.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.usefixtures("hanging")
async def test_a_socket_that_does_not_answer_is_passed_by(filled: BarnabasBroker) -> None:
    bootstrap = Bootstrap((Endpoint.parse(filled.bootstrap),))
    async with asyncio.timeout(PATIENCE_S), source.open_source(bootstrap, None, None) as found:
        assert not found.is_local


async def test_the_wait_for_a_broker_that_hangs_is_announced(
    hanging: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "NOTICE_AFTER_S", 0.01)
    waiting = asyncio.create_task(run_once(Bootstrap((Endpoint.parse(hanging),)), None, None))
    said = ""

    async def is_announced() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return f"barnabas: waiting for {hanging} … " in said

    try:
        await eventually_async(is_announced)
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


class Terminal:
    """A terminal in which a command runs."""

    def __init__(self, arguments: list[str]) -> None:
        self._screen, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "LINES": str(LINES), "COLUMNS": str(COLUMNS)}
        self.process = subprocess.Popen(
            arguments, stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True
        )
        self._mode = termios.tcgetattr(inner)
        self._inner = inner

    def press(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def wait_for(self, text: str) -> None:
        """Read what is drawn from here on, until the text is there."""
        shown = b""
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in shown:
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            if select.select([self._screen], [], [], 0.2)[0]:
                shown += os.read(self._screen, 65_536)

    def is_as_before(self) -> bool:
        return bool(termios.tcgetattr(self._inner)[3] == self._mode[3])

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._screen)
        os.close(self._inner)


def test_keys_sort_and_quit(filled: BarnabasBroker) -> None:
    terminal = Terminal(command("--data-dir", str(filled.data_directory), "--interval", "0.3"))
    try:
        terminal.wait_for("by in ↓")
        terminal.press("n")
        terminal.wait_for("by name ↑")
        terminal.press("n")
        terminal.wait_for("by name ↓")
        terminal.press("a")
        terminal.wait_for("by time ↓")
        terminal.press(" ")
        terminal.wait_for("paused")
        terminal.press("xq")
        assert terminal.process.wait(PATIENCE_S) == 0
        assert terminal.is_as_before()
    finally:
        terminal.close()
