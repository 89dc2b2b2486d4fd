"""Shared coordination store of a local cluster: its process, and what the supervisor tells it.

The supervisor gives each broker process a random name. When the process has ended, the store receives that
name, and ends the sessions of the process at once. The other brokers take over without waiting for the
session timeout.

All brokers of a cluster inherit the lock of its home, and the lock is free only when the last of them has
ended. So a supervisor that gets the lock knows that no earlier broker is left. The store then ends all
their sessions before the first broker starts.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from barnabas.cluster.shared.notices import report_all_ended, report_ended
from barnabas.cluster.shared.session import connect_to
from barnabas.cluster.shared.unix_socket import SOCKET_NAME
from barnabas.core.backoff import Backoff
from barnabas.node.membership.coordination_store import COORDINATION_DIRECTORY
from barnabas.node.store_process import READY_PREFIX
from barnabas.processes.child_process import Child, Say

LOCK_FILE: Final = ".cluster.lock"
LOCK_WAIT_S: Final = 3.0
"""The kernel ends the processes of a killed supervisor; that may take a moment."""
_LOCK_RETRY_S: Final = 0.02
_PROCESS_NAME_BYTES: Final = 16


class HomeInUse(Exception):
    """Another cluster, or a broker that it left behind, runs on this home."""


class SharedStoreMember:
    """A `supervisor.Member`: the process of the store. Brokers cannot do without it for long."""

    name = "store"
    restart_backoff = Backoff(first_ms=50.0, max_ms=1_000.0)

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def launch(self, say: Say) -> Child:
        command = (sys.executable, "-m", "barnabas.node.store_process", str(self._directory))
        return await Child.start(self.name, command, say, lambda line: line.startswith(READY_PREFIX))

    async def until_ready(self, child: Child) -> None:
        await child.wait_ready()

    def ended(self) -> None:
        """Its sessions stay in its files."""


class SharedStore:
    """Store of one cluster home."""

    def __init__(self, home: Path) -> None:
        self.directory = home / COORDINATION_DIRECTORY
        self.member = SharedStoreMember(self.directory)
        self._home = home
        self._connect = connect_to(self.socket)
        self._reports: set[asyncio.Task[None]] = set()
        self.lock: int | None = None
        """Descriptor of the home's lock, which every broker inherits."""

    @property
    def socket(self) -> Path:
        return self.directory / SOCKET_NAME

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the home. Raises HomeInUse while any process of an earlier cluster lives."""
        self._home.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._home / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(lock)
            self.lock = lock
            yield
        finally:
            self.lock = None
            os.close(lock)

    def _take(self, lock: int) -> None:
        for _ in range(int(LOCK_WAIT_S / _LOCK_RETRY_S)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_RETRY_S)
            else:
                return
        raise HomeInUse(f"another cluster is running on {self._home}; stop it, or choose another --data-dir")

    async def begin(self) -> None:
        """End the sessions that brokers of an earlier supervisor left, after the store has started."""
        await report_all_ended(self._connect)

    def process_ended(self, process: str) -> None:
        """Tell the store, now or when it is back."""
        report = asyncio.create_task(report_ended(self._connect, process))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def close(self) -> None:
        """Give up reports that the store has not received."""
        for report in tuple(self._reports):
            report.cancel()
        await asyncio.gather(*self._reports, return_exceptions=True)


def new_process_name() -> str:
    return secrets.token_hex(_PROCESS_NAME_BYTES)


def uses_zookeeper(home: Path) -> bool:
    """Whether the home has the data of a local ZooKeeper, with the metadata of its cluster."""
    return (home / "zookeeper" / "version-2").is_dir()
