"""The process that plans a stream, as Spark starts it, and a JVM that closes its connection."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import StructType

from pyspark_barnabas import DefaultSource
from pyspark_barnabas.worker.closed_connection import end_quietly_after_close
from tests.support.spark import REPOSITORY

SECRET = "secret"
ENGINES: dict[str, dict[str, str]] = {
    "python": {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"},
    "segments": {"engine": "segments", "manifest": "nowhere", "subscribe": "orders"},
}


def read_int(file: IO[bytes]) -> int:
    return int.from_bytes(file.read(4), signed=True)


def write_int(number: int, file: IO[bytes]) -> None:
    file.write(struct.pack(">i", number))


def write_with_length(data: bytes, file: IO[bytes]) -> None:
    write_int(len(data), file)
    file.write(data)


def write_text(text: str, file: IO[bytes]) -> None:
    write_with_length(text.encode(), file)


class Jvm:
    """The JVM's side of the connection to a process that plans a stream."""

    def __init__(self, source: DataSource, directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
                "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
                "PYTHON_WORKER_FACTORY_SECRET": SECRET,
            }
            self.process = subprocess.Popen(
                [sys.executable, "-m", runner.__name__],
                env=environment,
                stderr=subprocess.PIPE,
                text=True,
            )
            self._socket, _ = server.accept()
        self._file = cast("IO[bytes]", self._socket.makefile("rwb"))
        assert self._file.read(read_int(self._file)) == SECRET.encode()
        write_text("ok", self._file)
        write_text(f"{sys.version_info[0]}.{sys.version_info[1]}", self._file)
        write_text(str(directory), self._file)
        write_int(0, self._file)
        write_with_length(pickle.dumps(source), self._file)
        write_text(StructType().json(), self._file)
        write_int(1, self._file)
        self._file.flush()
        assert read_int(self._file) == self.process.pid
        if read_int(self._file) != 0:
            pytest.fail(f"no reader: {self._file.read(read_int(self._file)).decode()}")

    def ask(self, function_id: int) -> None:
        write_int(function_id, self._file)
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def pause_process(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def resume_process(self) -> str:
        """Let the process end; returns what it prints."""
        self.process.send_signal(signal.SIGCONT)
        _, printed = self.process.communicate()
        return printed


def close_without_a_word(jvm: Jvm) -> None:
    jvm.pause_process()
    jvm.close()


def close_before_the_answer(jvm: Jvm) -> None:
    jvm.pause_process()
    jvm.ask(runner.GET_DEFAULT_READ_LIMIT_FUNC_ID)
    jvm.close()


def close_without_reading_the_answer(jvm: Jvm) -> None:
    jvm.ask(runner.GET_DEFAULT_READ_LIMIT_FUNC_ID)
    jvm._socket.recv(1, socket.MSG_PEEK)
    jvm.pause_process()
    jvm.close()


@pytest.mark.parametrize(
    ("engine", "close"),
    [
        ("python", close_before_the_answer),
        pytest.param("python", close_without_a_word, marks=pytest.mark.slow),
        pytest.param("python", close_without_reading_the_answer, marks=pytest.mark.slow),
        pytest.param("segments", close_before_the_answer, marks=pytest.mark.slow),
    ],
)
def test_a_jvm_that_closes_first_leaves_no_traceback(
    engine: str, close: Callable[[Jvm], None], tmp_path: Path
) -> None:
    jvm = Jvm(DefaultSource(ENGINES[engine]), tmp_path)
    close(jvm)
    assert jvm.resume_process() == ""


def test_other_errors_are_still_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    try:
        raise EOFError
    except EOFError:
        end_quietly_after_close()
    sys.excepthook(BrokenPipeError, BrokenPipeError(), None)
    assert capsys.readouterr().err == ""
    sys.excepthook(ValueError, ValueError("wrong"), None)
    assert capsys.readouterr().err == "ValueError: wrong\n"


@pytest.mark.parametrize("error", [None, ValueError("of the reader")])
def test_an_error_of_the_reader_leaves_the_hook_as_it_is(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hook(*_: Any) -> None: ...

    monkeypatch.setattr(sys, "excepthook", hook)
    try:
        if error is not None:
            raise error
        end_quietly_after_close()
    except ValueError:
        end_quietly_after_close()
    assert sys.excepthook is hook
