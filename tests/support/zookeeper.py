"""A real ZooKeeper for the suites: one server for all tests of a run, a chroot for each test.

`running_zookeeper(directory)` is a server of its own, for tests that kill, restart or pause it. The fixtures
`zookeeper_server` (one for the whole run) and `zookeeper` (a fresh chroot in it, as a connect string) are for
all other tests; a conftest imports those it wants to offer. Where Java or PySpark is missing, tests that need
them are skipped with the reason.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.processes import zookeeper_process
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S

TICK_MS = 200
"""The shortest session is two ticks, and what has expired is noticed within one."""


class ZooKeeper:
    """One server process on a port and a directory that outlive it."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        host: str = "127.0.0.1",
        tick_ms: int = TICK_MS,
        wrap: Callable[[list[str]], list[str]] = lambda command: command,
    ) -> None:
        """`wrap` makes of its command one that runs it elsewhere, such as in another network namespace."""
        self._server = zookeeper_process.ZooKeeperServer(
            directory, free_port() if port is None else port, host=host, tick_ms=tick_ms, syncs=False
        )
        self._wrap = wrap
        self._process: ServerProcess | None = None
        self._chroots = itertools.count(1)

    @property
    def host(self) -> str:
        return self._server.host

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def directory(self) -> Path:
        return self._server.data_directory

    @property
    def connect(self) -> str:
        """HOST:PORT, the whole tree."""
        return self._server.connect

    def chroot(self) -> str:
        """HOST:PORT/chroot, with a chroot that was never used."""
        return f"{self.connect}/test-{os.getpid()}-{next(self._chroots)}"

    @property
    def process(self) -> ServerProcess:
        assert self._process is not None, "ZooKeeper was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> None:
        assert self._process is None or not self._process.is_running, "already running"
        self._process = ServerProcess(self._wrap(self._server.prepare()))
        deadline = time.monotonic() + PATIENCE_S
        while not self._server.is_serving():
            if not self._process.is_running or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(f"ZooKeeper does not start:\n{self._process.output_text()}")
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL. Its sessions live on in its files and continue after `start`."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers; for this server time stands still."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def require_zookeeper() -> None:
    """Skip the test where no ZooKeeper can be run."""
    try:
        zookeeper_process.find_java()
        zookeeper_process.find_jars()
    except zookeeper_process.CannotRunZooKeeper as error:
        pytest.skip(str(error))
    pytest.importorskip("kazoo")


@contextmanager
def running_zookeeper(directory: Path, *, tick_ms: int = TICK_MS) -> Iterator[ZooKeeper]:
    """A server of one's own, up on entry and gone on exit."""
    require_zookeeper()
    server = ZooKeeper(directory / "zookeeper", tick_ms=tick_ms)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def zookeeper_server_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zookeeper")


@pytest.fixture(scope="session", name="zookeeper_server")
def shared_zookeeper_server(zookeeper_server_directory: Path) -> Iterator[ZooKeeper]:
    """Shared by the run: connect to it as much as you like, but do not stop it."""
    with running_zookeeper(zookeeper_server_directory) as server:
        yield server


@pytest.fixture(name="zookeeper")
def fresh_chroot(zookeeper_server: ZooKeeper) -> str:
    """Connect string with a chroot for this test alone."""
    return zookeeper_server.chroot()
