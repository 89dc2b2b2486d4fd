"""Database of a jdbc part, from its address.

    postgresql://user@host:port/database
    mysql://user@host:port/database        (mariadb:// is the same; ?sslMode=verify_identity for TLS)
    sqlite:path/to/file.db                 (sqlite:/path and sqlite:///path are absolute)

Each may have `jdbc:` before it. User and password may be separate options.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.databases.database import Database
from barnabas.pipelines.spark.databases.mysql import Mysql
from barnabas.pipelines.spark.databases.postgres import Postgres
from barnabas.pipelines.spark.databases.sqlite import Sqlite
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.spec.options.databases import database_complaint, dialect_of, sqlite_path, tls_of


class _Address(NamedTuple):
    host: str
    port: int | None
    name: str
    user: str | None
    password: str | None


def database_of(part: Part, run: Run) -> Database:
    url = str(run.resolved(part, "url"))
    if complaint := database_complaint(url):
        raise PipelineFailed(f"url: {complaint}")
    dialect = dialect_of(url)
    if dialect == "sqlite":
        return Sqlite(sqlite_path(url), may_create=bool(part.get("create", False)))
    found = _parsed(url)
    user = run.resolved(part, "user") or found.user
    password = run.resolved(part, "password") or found.password
    if dialect == "mysql":
        mode, authorities = tls_of(url)
        port = found.port or 3306
        return Mysql(found.host, port, found.name, user or "root", password, mode, authorities)
    return Postgres(found.host, found.port or 5432, found.name, user or "postgres", password)


def _parsed(url: str) -> _Address:
    split = urlsplit(url.removeprefix("jdbc:"))
    query = {key: values[-1] for key, values in parse_qs(split.query).items()}
    user = split.username or query.get("user")
    return _Address(
        split.hostname or "127.0.0.1",
        split.port,
        unquote(split.path.strip("/")),
        unquote(user) if user else None,
        split.password or query.get("password"),
    )
