"""PostgreSQL by pg8000: pure Python, so that executors need no jar.

Staging tables are UNLOGGED: PostgreSQL does not write their rows twice, and empties them after any crash,
even of a single backend. The sink counts the staged rows before it moves them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Unavailable
from barnabas.pipelines.spark.databases.database import (
    BATCHES,
    ColumnType,
    Database,
    SourceColumn,
    replacement,
)

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 30.0
LOCK_WAIT_S = 30
"""Longest wait for a lock. A suspended driver may hold one for ever."""
PREPARE_LOCK = 0x62_61_72_6E_61_62_61_73
"""Advisory lock in a database, held while tables are created: the bytes of `barnabas`."""
MOMENT = "timestamptz"
TEXT = "text"
_ABSENT = ("08", "53", "57P0")
"""Prefixes of SQLSTATE codes for a server out of reach: connection, resources, shutdown and start."""
_NO_LOCK = "55P03"
"""SQLSTATE code of a lock that was waited for too long."""
_REFUSALS = ("22", "23", "P0001")
"""Prefixes of SQLSTATE codes that blame a row: data, constraints, and errors raised by a trigger."""
_WRITTEN: tuple[tuple[type[T.DataType], str], ...] = (
    (T.BooleanType, "boolean"), (T.ByteType, "smallint"), (T.ShortType, "smallint"),
    (T.IntegerType, "integer"), (T.LongType, "bigint"), (T.FloatType, "real"),
    (T.DoubleType, "double precision"), (T.StringType, TEXT), (T.BinaryType, "bytea"),
    (T.DateType, "date"), (T.TimestampType, MOMENT), (T.TimestampNTZType, "timestamp"),
    (T.DecimalType, "numeric"),
)  # fmt: skip
_NUMERIC = 1700
_READ = {
    16: "BOOLEAN", 17: "BINARY", 20: "BIGINT", 21: "SMALLINT", 23: "INT", 700: "FLOAT", 701: "DOUBLE",
    1082: "DATE", 1114: "TIMESTAMP_NTZ", 1184: "TIMESTAMP", _NUMERIC: "DECIMAL(38, 18)",
    1000: "ARRAY<BOOLEAN>", 1005: "ARRAY<SMALLINT>", 1007: "ARRAY<INT>", 1016: "ARRAY<BIGINT>",
    1021: "ARRAY<FLOAT>", 1022: "ARRAY<DOUBLE>", 1009: "ARRAY<STRING>", 1015: "ARRAY<STRING>",
}  # fmt: skip
"""PostgreSQL's type numbers; all other types are read as text."""
_IS_TEXT = frozenset({18, 19, 25, 1042, 1043})
"""Types that are text already: char, name, text, character, character varying."""
_PRECISION_MAX = 38
_MODIFIER_BYTES = 4
"""A type's modifier includes its own length."""


@dataclass(frozen=True, slots=True)
class Postgres(Database):
    host: str
    port: int
    name: str
    user: str
    password: str | None = field(default=None, repr=False)

    latest_first: ClassVar[str] = "_offset DESC NULLS LAST, _barnabas_row DESC"

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

    def __str__(self) -> str:
        return f"postgresql://{self.host}:{self.port}/{self.name}"

    def quote_name(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def type_of(self, kind: T.DataType, name: str, *, is_key: bool) -> ColumnType:  # noqa: ARG002
        for spark, sql in _WRITTEN:
            if isinstance(kind, spark):
                return ColumnType(sql, is_moment=sql == MOMENT)
        raise PipelineFailed(
            f"column {name} of type {kind.simpleString()} has no PostgreSQL type; cast or flatten it"
        )

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with super(Postgres, self).transaction() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'")
            yield cursor

    @contextmanager
    def preparing(self) -> Iterator[Any]:
        """Of two transactions that create the same table, PostgreSQL would fail one, even with IF NOT
        EXISTS."""
        with self.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (PREPARE_LOCK,))
            yield cursor

    def columns_of(self, cursor: Any, table: str) -> Mapping[str, str] | None:
        cursor.execute("SELECT to_regclass(%s) IS NULL", (self.quote(table),))
        if cursor.fetchone()[0]:
            return None
        cursor.execute(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (self.quote(table),),
        )
        return dict(cursor.fetchall())

    def unique_keys(self, cursor: Any, table: str) -> list[set[str]]:
        cursor.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i"
            " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
            " WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL"
            " GROUP BY i.indexrelid",
            (self.quote(table),),
        )
        return [set(columns) for (columns,) in cursor.fetchall()]

    def drop_staging(self, name: str) -> None:
        import pg8000.dbapi  # noqa: PLC0415 - an extra

        try:
            super(Postgres, self).drop_staging(name)
        except pg8000.dbapi.Error as error:
            if _state(error) != _NO_LOCK:
                raise
            logger.warning("%s: table %s is in use, and is left for the next start", self, name)

    def mark(self, cursor: Any, noted_as: str, batch_id: int) -> bool:
        cursor.execute(
            f"INSERT INTO {BATCHES} AS noted VALUES (%s, %s)"  # noqa: S608 - a table of ours
            " ON CONFLICT (pipeline) DO UPDATE SET batch_id = excluded.batch_id"
            " WHERE noted.batch_id < excluded.batch_id",
            (noted_as, batch_id),
        )
        return bool(cursor.rowcount)

    def create_staging(self, staging: str, columns: str) -> str:
        return f"CREATE UNLOGGED TABLE {staging} ({columns})"

    def staging_types(
        self, cursor: Any, table: str, names: Sequence[str], kinds: Sequence[ColumnType], key: Sequence[str]
    ) -> list[str]:
        """A key is staged as the target's type. Two keys may be equal there: `char(n)`, `uuid`, a rounded
        number, a collation. They would otherwise be two rows, which PostgreSQL refuses to replace in one
        statement."""
        cursor.execute(
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)"
            " || CASE WHEN a.attcollation IN (0, t.typcollation) THEN ''"
            " ELSE ' COLLATE ' || quote_ident(n.nspname) || '.' || quote_ident(c.collname) END"
            " FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
            " LEFT JOIN pg_collation c ON c.oid = a.attcollation"
            " LEFT JOIN pg_namespace n ON n.oid = c.collnamespace"
            " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped",
            (self.quote(table),),
        )
        target = dict(cursor.fetchall())
        return [target[name] if name in key else kind.sql for name, kind in zip(names, kinds, strict=True)]

    def staging_tables(self, cursor: Any, prefix: str) -> list[str]:
        pattern = prefix.replace("_", r"\_") + "%"
        cursor.execute("SELECT tablename::text FROM pg_tables WHERE tablename LIKE %s", (pattern,))
        return [name for (name,) in cursor.fetchall()]

    def selected(
        self, cursor: Any, table: str, names: Sequence[str], kinds: Sequence[ColumnType]
    ) -> list[str]:
        """Text is cast to the type of the target (jsonb, uuid, an enum), which PostgreSQL does not do
        implicitly."""
        cursor.execute(
            "SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute a"
            " JOIN pg_type t ON t.oid = a.atttypid"
            " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"
            " AND t.typcategory <> 'S' AND t.typname <> 'bytea'",
            (self.quote(table),),
        )
        others = dict(cursor.fetchall())
        return [
            f"CAST({self.quote_name(name)} AS {others[name]})"
            if kind.sql == TEXT and name in others
            else self.quote_name(name)
            for name, kind in zip(names, kinds, strict=True)
        ]

    def replace_rows(
        self, table: str, names: Sequence[str], key: Sequence[str], selected: Sequence[str], latest: str
    ) -> str:
        return replacement(self, table, names, key, selected, latest)

    def check_constraints(self, cursor: Any) -> None:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def described(self, cursor: Any, relation: str) -> list[SourceColumn]:
        cursor.execute(f"SELECT * FROM {relation} LIMIT 0", ())  # noqa: S608 - the user's own table
        return [self._column(each) for each in cursor._context.columns]

    def _column(self, described: Mapping[str, Any]) -> SourceColumn:
        name, number = str(described["name"]), int(described["type_oid"])
        quoted = self.quote_name(name)
        if number == _NUMERIC:
            return SourceColumn(name, _decimal(int(described["type_modifier"])), quoted)
        kind = _READ.get(number, "STRING")
        is_text = number in _READ or number in _IS_TEXT
        return SourceColumn(name, kind, quoted if is_text else f"{quoted}::text")

    def as_text(self, expression: str) -> str:
        return f"{expression}::text"


def blames_row(error: BaseException) -> bool:
    """True if an error of the database blames the rows, not the server."""
    detail = error.args[0] if error.args else None
    return isinstance(detail, dict) and str(detail.get("C", "")).startswith(_REFUSALS)


def _decimal(modifier: int) -> str:
    """`numeric(p, s)` as it is; `numeric` without precision as in Spark's own source."""
    precision, scale = modifier - _MODIFIER_BYTES >> 16, modifier - _MODIFIER_BYTES & 0x7FF
    if modifier < _MODIFIER_BYTES or not 0 <= scale <= precision <= _PRECISION_MAX:
        return _READ[_NUMERIC]
    return f"DECIMAL({precision}, {scale})"


def _is_of_absence(error: Exception) -> bool:
    """True if the server is missing, starting, stopping or full; a refused password is none of these."""
    state = _state(error)
    return state is None or state.startswith(_ABSENT)


def _state(error: BaseException) -> str | None:
    """SQLSTATE code of the server's answer; None without one."""
    detail = error.args[0] if error.args else None
    return str(detail.get("C", "")) if isinstance(detail, dict) else None


def _message(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return str(detail.get("M", detail)) if isinstance(detail, dict) else str(detail)
