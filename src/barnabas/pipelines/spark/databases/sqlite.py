"""SQLite, by Python's own driver.

A database is a file with one writer. So tasks write nothing: the driver takes their rows into a temporary
table of its connection, and then locks the file for one short transaction. SQLite keeps any value in any
column, and has no type for moments, days and exact numbers of many digits: these are stored as text, in UTC.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote as percent_encoded

from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Unavailable
from barnabas.pipelines.spark.databases.database import (
    BATCHES,
    ColumnType,
    Database,
    RowRefused,
    SourceColumn,
    replacement,
)

BUSY_TIMEOUT_S = 30.0
_EXACT_DIGITS = 15
"""Digits of a number that SQLite keeps."""
_WRITTEN: tuple[tuple[type[T.DataType], str], ...] = (
    (T.BooleanType, "boolean"), (T.ByteType, "integer"), (T.ShortType, "integer"), (T.IntegerType, "integer"),
    (T.LongType, "integer"), (T.FloatType, "real"), (T.DoubleType, "real"), (T.StringType, "text"),
    (T.BinaryType, "blob"), (T.DateType, "text"), (T.TimestampNTZType, "text"),
)  # fmt: skip
_READ = (("INT", "BIGINT"), ("CHAR", "STRING"), ("CLOB", "STRING"), ("TEXT", "STRING"), ("BLOB", "BINARY"),
         ("REAL", "DOUBLE"), ("FLOA", "DOUBLE"), ("DOUB", "DOUBLE"), ("BOOL", "BIGINT"))  # fmt: skip
"""SQLite's own rule for the type of a declared column: the first of these that its name contains."""


@dataclass(frozen=True, slots=True)
class Sqlite(Database):
    path: str
    may_create: bool = False

    placeholder: ClassVar[str] = "?"
    stages_in_tasks: ClassVar[bool] = False
    names_fold: ClassVar[bool] = True

    def connect(self) -> sqlite3.Connection:
        mode = "rwc" if self.may_create else "rw"
        place = percent_encoded(str(Path(self.path).absolute()))
        try:
            opened = sqlite3.connect(
                f"file:{place}?mode={mode}", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None
            )
        except sqlite3.OperationalError as error:
            raise Unavailable(f"no connection to {self}: {error}") from None
        try:
            opened.execute("PRAGMA foreign_keys = ON")
        except sqlite3.DatabaseError as error:
            opened.close()
            raise Unavailable(f"no connection to {self}: {error}") from None
        return opened

    @contextmanager
    def session(self) -> Iterator[Any]:
        """Cursor of a connection; the caller begins transactions on it."""
        with closing(self.connect()) as connection:
            yield connection.cursor()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.session() as cursor, self.locked(cursor):
            yield cursor

    @contextmanager
    def trial(self) -> Iterator[Any]:
        with self.session() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
            finally:
                if cursor.connection.in_transaction:
                    cursor.execute("ROLLBACK")

    @contextmanager
    def locked(self, cursor: Any) -> Iterator[None]:
        """Transaction of the only writer."""
        try:
            cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            raise Away(f"{self} has been locked by another program for {BUSY_TIMEOUT_S:.0f} s") from None
        try:
            yield
        except BaseException:
            # Closing is not enough: a cursor that a traceback holds would keep the connection and its lock.
            if cursor.connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Cursor outside of a writer's transaction, which would keep others from writing."""
        with self.session() as cursor:
            yield cursor

    def __str__(self) -> str:
        return f"sqlite:{self.path}"

    def quote_name(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def type_of(self, kind: T.DataType, name: str, *, is_key: bool) -> ColumnType:  # noqa: ARG002
        for spark, sql in _WRITTEN:
            if isinstance(kind, spark):
                return ColumnType(sql)
        if isinstance(kind, T.TimestampType):
            return ColumnType("text", is_moment=True)
        if isinstance(kind, T.DecimalType):
            return ColumnType("numeric" if kind.precision <= _EXACT_DIGITS else "text")
        raise PipelineFailed(
            f"column {name} of type {kind.simpleString()} has no SQLite type; cast or flatten it"
        )

    def adapted(self, value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            raise RowRefused("sink.table: a row has the number nan, which SQLite would turn into a null")
        if isinstance(value, datetime):
            moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return moment.isoformat(" ", "microseconds")
        if isinstance(value, date):
            return value.isoformat()
        return str(value) if isinstance(value, Decimal) else value

    @contextmanager
    def preparing(self) -> Iterator[Any]:
        with self.transaction() as cursor:
            yield cursor

    def columns_of(self, cursor: Any, table: str) -> Mapping[str, str] | None:
        found = self._pragma(cursor, "table_info", table)
        return {row[1]: row[2] for row in found} or None

    def unique_keys(self, cursor: Any, table: str) -> list[set[str]]:
        keys = [{row[1] for row in self._pragma(cursor, "table_info", table) if row[5]}]
        for row in self._pragma(cursor, "index_list", table):
            is_unique, is_partial = bool(row[2]), bool(row[4])
            columns = {each[2] for each in self._pragma(cursor, "index_info", row[1])}
            if is_unique and not is_partial and None not in columns:
                keys.append(columns)
        return [key for key in keys if key]

    def _collations(self, cursor: Any, table: str, key: Sequence[str]) -> dict[str, str]:
        """Collations of the key's columns, by lower-case name."""
        wanted = {name.lower() for name in key}
        for row in self._pragma(cursor, "index_list", table):
            parts = [each for each in self._pragma(cursor, "index_xinfo", row[1]) if each[5]]
            if {str(each[2]).lower() for each in parts} == wanted:
                return {str(each[2]).lower(): str(each[4]) for each in parts}
        return {}

    def _pragma(self, cursor: Any, name: str, table: str) -> list[Any]:
        schema, _, bare = table.rpartition(".")
        prefix = f"{self.quote_name(schema)}." if schema else ""
        return list(cursor.execute(f"PRAGMA {prefix}{name}({self.quote_name(bare)})").fetchall())

    def mark(self, cursor: Any, noted_as: str, batch_id: int) -> bool:
        cursor.execute(
            f"INSERT INTO {BATCHES} VALUES (?, ?)"  # noqa: S608 - a table of ours
            " ON CONFLICT (pipeline) DO UPDATE SET batch_id = excluded.batch_id"
            " WHERE batch_id < excluded.batch_id",
            (noted_as, batch_id),
        )
        return bool(cursor.rowcount)

    def create_staging(self, staging: str, columns: str) -> str:
        return f"CREATE TEMP TABLE {staging} ({columns})"

    def staging_types(
        self, cursor: Any, table: str, names: Sequence[str], kinds: Sequence[ColumnType], key: Sequence[str]
    ) -> list[str]:
        target = {name.lower(): kind for name, kind in (self.columns_of(cursor, table) or {}).items()}
        collations = self._collations(cursor, table, key)
        return [
            f"{target[name.lower()]} COLLATE {collations.get(name.lower(), 'BINARY')}"
            if name in key
            else kind.sql
            for name, kind in zip(names, kinds, strict=True)
        ]

    def staging_tables(self, cursor: Any, prefix: str) -> list[str]:  # noqa: ARG002
        """None: temporary tables end with their connection."""
        return []

    def replace_rows(
        self, table: str, names: Sequence[str], key: Sequence[str], selected: Sequence[str], latest: str
    ) -> str:
        return replacement(self, table, names, key, selected, latest)

    def described(self, cursor: Any, relation: str) -> list[SourceColumn]:
        """Columns of a view over the relation: SQLite tells declared types only of tables and views."""
        cursor.execute("DROP VIEW IF EXISTS temp.barnabas_described")
        cursor.execute(f"CREATE TEMP VIEW barnabas_described AS SELECT * FROM {relation}")  # noqa: S608
        found = cursor.execute("PRAGMA temp.table_info(barnabas_described)").fetchall()
        return [self._column(row[1], str(row[2]).upper()) for row in found]

    def _column(self, name: str, declared: str) -> SourceColumn:
        quoted = self.quote_name(name)
        kind = next((kind for word, kind in _READ if word in declared), None)
        if kind is None:
            return SourceColumn(name, "STRING", self.as_text(quoted))
        return SourceColumn(name, kind, quoted)

    def as_text(self, expression: str) -> str:
        """CAST keeps fifteen digits of a number with a fraction."""
        return (
            f"CASE typeof({expression}) WHEN 'real' THEN printf('%!.17g', {expression})"
            f" ELSE CAST({expression} AS TEXT) END"
        )

    def bound(self, text: str, kind: str) -> Any:
        if kind == "BIGINT":
            return int(text)
        return float(text) if kind == "DOUBLE" else text

    def raw(self, sql: str) -> str:
        return sql


def blames_row(error: BaseException) -> bool:
    """True if an error of the database blames the rows, not the file."""
    return isinstance(error, (sqlite3.IntegrityError, sqlite3.DataError))
