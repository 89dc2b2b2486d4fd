"""A real MariaDB for a test run: a data directory of its own, on a free port."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.process import ServerProcess

PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
DATABASE = "shop"


class Mariadb:
    def __init__(self, port: int, start: Callable[[], ServerProcess]) -> None:
        self.port = port
        self.url = f"mysql://root@127.0.0.1:{port}/{DATABASE}"
        self._start = start
        self._process = start()
        self._process.wait_ready(60)

    def crash(self) -> None:
        """As when the kernel kills it, and a supervisor starts it again."""
        self._process.kill()
        self._process = self._start()
        self._process.wait_ready(60)

    def kill(self) -> None:
        self._process.kill()

    def query(self, sql: str) -> list[Any]:
        import pymysql

        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=DATABASE, autocommit=True
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()


@contextmanager
def run_mariadb(*options: str) -> Iterator[Mariadb]:
    pytest.importorskip("pymysql", reason="PyMySQL is not installed")
    install = shutil.which("mariadb-install-db", path=PLACES)
    server = shutil.which("mariadbd", path=PLACES)
    if install is None or server is None:
        pytest.skip("MariaDB is not installed")
    with tempfile.TemporaryDirectory(prefix="maria-", ignore_cleanup_errors=True) as scratch:
        data = Path(scratch) / "data"
        user = ["--user=root"] if os.geteuid() == 0 else []
        subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
             "--skip-test-db", *user],
            check=True, capture_output=True, cwd=scratch,
        )  # fmt: skip
        start = Path(scratch) / "start.sql"
        start.write_text(f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n")
        port = free_port()
        command = [
            server, "--no-defaults", f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1",
            f"--socket={scratch}/socket", f"--pid-file={scratch}/pid", f"--init-file={start}",
            "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=1", *user, *options,
        ]  # fmt: skip

        def started() -> ServerProcess:
            return ServerProcess(
                command,
                is_ready=lambda line: "ready for connections" in line,
                working_directory=Path(scratch),
            )

        running = Mariadb(port, started)
        try:
            yield running
        finally:
            running.kill()
