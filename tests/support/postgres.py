"""A real PostgreSQL for a test run: a cluster of its own in a directory, on a free port.

PostgreSQL refuses to run as root; there, it runs as the user `postgres` or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.process import ServerProcess

PLACES = (os.environ.get("PATH", ""), "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/16/bin")


class Postgres:
    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"postgresql://127.0.0.1:{port}/postgres"

    def crash(self) -> None:
        """As when the kernel kills a backend: PostgreSQL ends every connection, recovers, and empties
        tables that are UNLOGGED."""
        pid = self._background_writer()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while self._background_writer() in (pid, None):
            assert time.monotonic() < deadline, "PostgreSQL does not come back"
            time.sleep(0.05)

    def _background_writer(self) -> int | None:
        import pg8000.dbapi

        try:
            ((pid,),) = self.query(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'"
            )
        except (OSError, ValueError, pg8000.dbapi.Error):
            return None
        return int(pid)

    def query(self, sql: str) -> list[Any]:
        import pg8000.dbapi

        opened = socket.create_connection(("127.0.0.1", self.port))
        try:
            connection = pg8000.dbapi.connect(user="postgres", database="postgres", sock=opened)
        except pg8000.dbapi.Error:
            socket.close(opened.detach())  # the driver leaves it to the garbage collector
            raise
        try:
            cursor = connection.cursor()
            cursor.execute(sql)
            rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return [tuple(row) for row in rows]
        finally:
            connection.close()


@contextmanager
def run_postgres() -> Iterator[Postgres]:
    pytest.importorskip("pg8000", reason="pg8000 is not installed")
    initdb = shutil.which("initdb", path=os.pathsep.join(PLACES))
    server = shutil.which("postgres", path=os.pathsep.join(PLACES))
    if initdb is None or server is None:
        pytest.skip("PostgreSQL is not installed")
    user = _user()
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as scratch:
        if user is not None:
            shutil.chown(scratch, user)
        data = Path(scratch) / "data"
        subprocess.run(
            [initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", "--locale=C",
             "--encoding=UTF8"],
            check=True, capture_output=True, user=user, cwd=scratch,
        )  # fmt: skip
        port = free_port()
        command = [server, "-D", str(data), "-p", str(port), "-k", scratch, "-h", "127.0.0.1", "-F"]
        if user is not None:
            command = ["setpriv", "--reuid", user, "--clear-groups", *command]
        process = ServerProcess(
            command,
            is_ready=lambda line: "ready to accept connections" in line,
            working_directory=Path(scratch),
        )
        try:
            process.wait_ready(60)
            yield Postgres(port)
        finally:
            process.stop()


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
