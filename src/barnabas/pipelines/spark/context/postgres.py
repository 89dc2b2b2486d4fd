"""PostgreSQL connections by pg8000: pure Python, so that executors need no jar.

An address is `postgresql://user@host:port/database`, with an optional `jdbc:` before it. User and password
may be separate options.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Run, Unavailable
from barnabas.pipelines.spec.model import Part

PORT = 5432
CONNECT_TIMEOUT_S = 30.0
_ABSENT = ("08", "53", "57P0")
"""Prefixes of SQLSTATE codes for a server out of reach: connection, resources, shutdown and start."""


@dataclass(frozen=True, slots=True)
class Database:
    host: str
    port: int
    name: str
    user: str
    password: str | None = field(default=None, repr=False)

    def connect(self) -> Any:
        try:
            import pg8000.dbapi  # noqa: PLC0415 - an extra
        except ImportError:
            raise PipelineFailed("PostgreSQL needs its driver: pip install pg8000") from None
        opened = self._open()
        try:
            return pg8000.dbapi.connect(
                user=self.user, database=self.name, password=self.password, sock=opened
            )
        except pg8000.dbapi.Error as error:
            if (descriptor := opened.detach()) >= 0:
                socket.close(descriptor)  # some failures of pg8000 leave it open
            kind = Away if _is_of_absence(error) else Unavailable
            raise kind(f"no connection to {self}: {_message(error)}") from None

    def _open(self) -> socket.socket:
        try:
            opened = socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_S)
        except OSError as error:
            raise Away(f"no connection to {self}: {error}") from None
        opened.settimeout(None)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return opened

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Cursor of a transaction that is committed if the block succeeds."""
        connection = self.connect()
        try:
            yield connection.cursor()
            connection.commit()
        finally:
            connection.close()

    @contextmanager
    def trial(self) -> Iterator[Any]:
        """Cursor of a transaction that is rolled back."""
        connection = self.connect()
        try:
            yield connection.cursor()
        finally:
            connection.close()

    def __str__(self) -> str:
        return f"postgresql://{self.host}:{self.port}/{self.name}"


def database_of(part: Part, run: Run) -> Database:
    url = str(run.resolved(part, "url"))
    split = urlsplit(url.removeprefix("jdbc:"))
    if split.scheme not in ("postgresql", "postgres") or not split.path.strip("/"):
        shown = url.rsplit("@", maxsplit=1)[-1].split("?", maxsplit=1)[0]
        raise PipelineFailed(
            f"{shown!r} is not postgresql://host:port/database: only PostgreSQL is supported"
        )
    query = {key: values[-1] for key, values in parse_qs(split.query).items()}
    user = run.resolved(part, "user") or split.username or query.get("user") or "postgres"
    password = run.resolved(part, "password") or split.password or query.get("password")
    name = unquote(split.path.strip("/"))
    return Database(split.hostname or "127.0.0.1", split.port or PORT, name, unquote(user), password)


def quote(name: str) -> str:
    """Table name quoted for SQL; dots separate schema and table."""
    return ".".join(map(quote_name, name.split(".")))


def quote_name(name: str) -> str:
    """Column name quoted for SQL. `Flatten` makes names with dots."""
    return '"' + name.replace('"', '""') + '"'


def _is_of_absence(error: Exception) -> bool:
    """True if the server is missing, starting, stopping or full; a refused password is none of these."""
    detail = error.args[0] if error.args else None
    return not isinstance(detail, dict) or str(detail.get("C", "")).startswith(_ABSENT)


def _message(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return str(detail.get("M", detail)) if isinstance(detail, dict) else str(detail)
