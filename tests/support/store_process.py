"""A shared store in a process of its own, which receives the end of brokers as from a supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import barnabas
from barnabas.cluster.shared.notices import report_ended
from barnabas.cluster.shared.session import connect_to
from barnabas.cluster.shared.unix_socket import SOCKET_NAME
from barnabas.node.store_process import READY_PREFIX
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S


class StoreProcess:
    """One store on a directory that outlives its process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: ServerProcess | None = None

    @property
    def socket(self) -> Path:
        return self.directory / SOCKET_NAME

    @property
    def process(self) -> ServerProcess:
        assert self._process is not None, "the store was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> None:
        source = str(Path(barnabas.__file__).parents[1])
        search_path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        self._process = ServerProcess(
            [sys.executable, "-m", "barnabas.node.store_process", str(self.directory)],
            is_ready=lambda line: line.startswith(READY_PREFIX),
            environment={"PYTHONPATH": search_path},
        )
        self._process.wait_ready(PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL. Its sessions live on in its files and continue after `start`."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def report_ended(self, process: str) -> None:
        """Tell the store now, or when it is back; does not wait for that."""
        report = report_ended(connect_to(self.socket), process)
        threading.Thread(target=asyncio.run, args=(report,), daemon=True).start()
