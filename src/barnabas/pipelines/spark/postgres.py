"""Connections to PostgreSQL, by pg8000: pure Python, so that executors need no jar.

An address is `postgresql://user@host:port/database`, with or without `jdbc:` before it; user and
password may stand in options of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from barnabas.pipelines.spark.run import PipelineFailed, Run, Unavailable
from barnabas.pipelines.spec.model import Part

PORT = 5432


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
        try:
            return pg8000.dbapi.connect(
                user=self.user, host=self.host, port=self.port, database=self.name, password=self.password
            )
        except pg8000.dbapi.Error as error:
            raise Unavailable(f"no connection to {self}: {_message(error)}") from None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor; what is done with it counts if the block ends well."""
        connection = self.connect()
        try:
            yield connection.cursor()
            connection.commit()
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
            f"{shown!r} is not postgresql://host:port/database: only PostgreSQL is spoken here"
        )
    query = {key: values[-1] for key, values in parse_qs(split.query).items()}
    user = run.resolved(part, "user") or split.username or query.get("user") or "postgres"
    password = run.resolved(part, "password") or split.password or query.get("password")
    name = unquote(split.path.strip("/"))
    return Database(split.hostname or "127.0.0.1", split.port or PORT, name, unquote(user), password)


def quote(name: str) -> str:
    """A table's name as SQL writes it; dots separate schema and table."""
    return ".".join(map(quote_name, name.split(".")))


def quote_name(name: str) -> str:
    """A column's name as SQL writes it: `Flatten` makes such with dots in them."""
    return '"' + name.replace('"', '""') + '"'


def _message(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return str(detail.get("M", detail)) if isinstance(detail, dict) else str(detail)
