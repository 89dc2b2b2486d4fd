"""Barnabas as its users run it: a process of its own, reached only through its socket.

Every suite that needs a running broker starts it here. `Broker` is also the shape in which
Apache Kafka appears (tests.peers.kafka), so that one test or measurement serves both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psutil

import barnabas
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[2]
READY_PREFIX = "barnabas ready"


class Broker(Protocol):
    """A broker process on a data directory that outlives it."""

    @property
    def name(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def data_directory(self) -> Path: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def launch(self) -> None: ...
    def wait_ready(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def output_text(self) -> str: ...


class BarnabasBroker:
    """`python -m barnabas start` on a fixed port and data directory; may be started again after its end."""

    name = "barnabas"
    host = "127.0.0.1"

    def __init__(
        self,
        data_directory: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        arguments: Sequence[str] = (),
        protocol: str = "PLAINTEXT",
        code: Path | None = None,
    ) -> None:
        """`code` is where the package is, if it is another than ours: a wheel that is unpacked there."""
        self.data_directory = data_directory
        self._code = code
        self.port = free_port() if port is None else port
        self._settings = dict(settings or {})
        self._arguments = list(arguments)
        self._protocol = protocol
        self._process: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> ServerProcess:
        assert self._process is not None, "the broker was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def command(self) -> list[str]:
        command = [sys.executable, "-m", "barnabas", "start"]
        command += [
            "--listener",
            f"{self._protocol}://{self.bootstrap}",
            "--data-dir",
            str(self.data_directory),
        ]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        return command + self._arguments

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """The process is on its way; it may not serve yet."""
        assert self._process is None or not self._process.is_running, "already running"
        # The source, or the wheel that is tried.
        source = str(self._code or Path(barnabas.__file__).parents[1])
        search_path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        self._process = ServerProcess(
            self.command,
            is_ready=lambda line: line.startswith(READY_PREFIX),
            environment={"PYTHONPATH": search_path, "PYTHONUNBUFFERED": "1", **self.environment()},
        )

    def environment(self) -> dict[str, str]:
        """Variables of the next process, beside the usual ones."""
        return {}

    def wait_ready(self, timeout_s: float = PATIENCE_S) -> None:
        self.process.wait_ready(timeout_s)

    def stop(self) -> None:
        """Ends it as an operator would; an exit code other than 0 is an error, unless `kill` was first."""
        code = self.process.stop()
        assert code == 0 or self.process.was_killed, f"exit code {code} after SIGTERM:\n{self.output_text()}"

    def kill(self) -> None:
        self.process.kill()

    def output_text(self) -> str:
        return self._process.output_text() if self._process is not None else ""


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    """Started on entry, gone on exit, also if the block stopped or killed it."""
    broker.start()
    try:
        yield broker
    except BaseException:
        broker.kill()
        raise
    broker.stop()


@contextmanager
def barnabas_broker(data_directory: Path, **settings: object) -> Iterator[BarnabasBroker]:
    """A running Barnabas; keyword `log_segment_bytes=…` becomes `--set log.segment.bytes=…`."""
    broker = BarnabasBroker(
        data_directory, settings={key.replace("_", "."): value for key, value in settings.items()}
    )
    with running(broker):
        yield broker


def partition_directory(broker: Broker, topic: str, partition: int = 0) -> Path:
    """Directory of a partition, at any depth of the broker's data directory."""
    found = sorted(broker.data_directory.rglob(f"{topic}-{partition}"))
    assert len(found) == 1, f"{topic}-{partition}: {found or 'nowhere'} in {broker.data_directory}"
    return found[0]


def resident_bytes(broker: Broker) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def cpu_seconds(broker: Broker) -> float:
    """User and system time of the broker and of what it started."""
    process = psutil.Process(broker.pid)
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))
