"""The daemon that forks the workers of tasks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark_barnabas.worker import daemon

CHECK = """
import os, sys
from pyspark_barnabas.worker import daemon
alone = daemon.preload()
sys.stdout.write(f"{alone} {[name for name in daemon.NEEDED if name not in sys.modules]}")
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_what_workers_need_is_imported_and_no_thread_is_started() -> None:
    """Otherwise a worker could be forked while another thread holds a lock, which would never be released."""
    assert run(CHECK) == "True []"


def test_a_thread_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    waiting = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    telling = (
        "from pyspark_barnabas.worker import daemon; import sys; sys.stdout.write(str(daemon.is_alone()))"
    )
    assert (run(telling), run(waiting + telling)) == ("True", "False")
    monkeypatch.setattr(daemon, "THREADS", tmp_path / "nowhere")
    assert not daemon.is_alone(), "it is not known"


def test_with_a_thread_it_becomes_sparks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[list[str]] = []

    def execv(_: str, words: list[str]) -> None:
        began.append(words)
        raise SystemExit

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(daemon, "preload", lambda: False)
    monkeypatch.setattr(sys, "argv", ["daemon", "pyspark.worker"])
    with pytest.raises(SystemExit):
        daemon.main()
    assert began == [[sys.executable, "-m", "pyspark.daemon", "pyspark.worker"]]


def test_workers_neither_keep_back_what_they_send_nor_acknowledge_late() -> None:
    """Before every task: the kernel forgets the second as soon as a worker has answered."""
    seen: list[tuple[bool, bool]] = []

    def worker(connection: socket.socket, authenticated: bool) -> int:
        quick = daemon.ACKNOWLEDGE_AT_ONCE
        assert quick is not None, "this is Linux"
        options = (socket.TCP_NODELAY, quick)
        no_delay, at_once = (bool(connection.getsockopt(socket.IPPROTO_TCP, each)) for each in options)
        seen.append((no_delay, at_once))
        connection.setsockopt(socket.IPPROTO_TCP, quick, 0)
        return int(authenticated)

    work = daemon.prompt(worker)
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as connection:
            assert [work(connection, False), work(connection, True)] == [0, 1]
    assert seen == [(True, True)] * 2


def test_a_socket_that_is_a_file_is_left_as_it_is() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert daemon.prompt(lambda *_: 7)(ours, True) == 7
