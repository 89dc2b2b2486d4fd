"""PostgreSQL sink: every micro-batch is written to a table once.

Tasks copy their rows into a staging table that belongs to this batch of this run. Each attempt at a task has
its own number there, and reports the count of its staged rows to the driver. One transaction of the driver
then records the batch number beside the query id, and moves the staged rows into the target. Only attempts
that Spark accepted count. The query id is constant for a checkpoint, and unique to the query. A recorded
batch is skipped: of two drivers that run the same query for a moment, one writes it.

The staging table is UNLOGGED: PostgreSQL does not write its rows twice, and empties it after any crash, even
of a single backend. So the transaction counts the staged rows before it records the batch. If rows of an
attempt are missing, the transaction is rolled back and Spark runs the batch again.

Of rows with the same key the last of the batch wins. That is the one with the highest offset. Where a
transform dropped the offsets, it is the last that the task read (one task reads a partition: see
`connector`).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.columns.columns import payload, quoted
from barnabas.pipelines.spark.context.postgres import Database, database_of, quote, quote_name
from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Run
from barnabas.pipelines.spark.sinks.built_sink import BuiltSink, query_id
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.state.durable_files import sync_plan

BATCHES = "barnabas_batches"
PREPARE_LOCK = 0x62_61_72_6E_61_62_61_73
"""Advisory lock in a database, held while tables are created: the bytes of `barnabas`."""
MOMENT = "timestamptz"
TEXT = "text"
ROWS_PER_INSERT = 500
PARAMETERS_MAX = 32_767
"""Parameters of one statement: the protocol counts them in sixteen bits."""
_TYPES: tuple[tuple[type[T.DataType], str], ...] = (
    (T.BooleanType, "boolean"), (T.ByteType, "smallint"), (T.ShortType, "smallint"),
    (T.IntegerType, "integer"), (T.LongType, "bigint"), (T.FloatType, "real"),
    (T.DoubleType, "double precision"), (T.StringType, TEXT), (T.BinaryType, "bytea"),
    (T.DateType, "date"), (T.TimestampType, MOMENT), (T.TimestampNTZType, "timestamp"),
    (T.DecimalType, "numeric"),
)  # fmt: skip


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> BuiltSink:  # noqa: ARG001
    target, chosen = _target(rows, part, run)

    def take(batch: DataFrame, batch_id: int) -> None:
        sync_plan(run.checkpoint(), batch_id)
        target.take(batch, batch_id)

    return BuiltSink(chosen.writeStream.foreachBatch(take))


def try_out(rows: DataFrame, part: Part, run: Run) -> None:
    """Write rows as a micro-batch does, and roll back: raises the database's error about them."""
    target, chosen = _target(rows, part, run)
    target.try_out(chosen)


def last_batch(part: Part, run: Run, query: str) -> int:
    """Last batch of the query in the table; -1 if there is none."""
    with database_of(part, run).transaction() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NULL", (BATCHES,))
        if cursor.fetchone()[0]:
            return -1
        cursor.execute(
            f"SELECT batch_id FROM {BATCHES} WHERE pipeline = %s",  # noqa: S608 - a table of ours
            (f"{run.spec.name}/{query}",),
        )
        row = cursor.fetchone()
        return -1 if row is None else int(row[0])


def _target(rows: DataFrame, part: Part, run: Run) -> tuple[_Target, DataFrame]:
    """The target table, and the rows in its form."""
    names = payload(rows)
    missing = [name for name in part.get("key", []) if name not in names]
    if missing:
        raise PipelineFailed(
            f"the sink's key {', '.join(missing)} is not a column; there are {', '.join(names)}"
        )
    kinds = [postgres_type(rows.schema[name].dataType, name) for name in names]
    target = _Target(database_of(part, run), part, run.spec.name, names, kinds)
    target.prepare()
    order = quoted("_offset") if "_offset" in rows.columns else F.lit(None)
    chosen = rows.select(order.cast("bigint").alias("_offset"), *(quoted(name) for name in names))
    return target, chosen


def postgres_type(kind: T.DataType, name: str) -> str:
    for spark, sql in _TYPES:
        if isinstance(kind, spark):
            return sql
    raise PipelineFailed(
        f"column {name} of type {kind.simpleString()} has no PostgreSQL type; cast or flatten it"
    )


class Staged(NamedTuple):
    """Report of one attempt at a task."""

    attempt: int
    rows: int


class _Target:
    def __init__(
        self, database: Database, part: Part, pipeline: str, names: Sequence[str], kinds: Sequence[str]
    ) -> None:
        self._database = database
        self._name: str = part["table"]
        self._table = quote(part["table"])
        self._may_create = bool(part.get("create", True))
        self._key: list[str] = part.get("key", []) if part["mode"] == "upsert" else []
        self._pipeline = pipeline
        self._names = list(names)
        self._kinds = list(kinds)
        self._is_first = True
        self._target_types: dict[str, str] = {}
        """Types of columns that do not accept text without a cast: jsonb, uuid, an enum …"""

    def prepare(self) -> None:
        """Create the tables, and check that the target accepts the rows, before any record is read.

        Pipelines that start at once take turns. Of two transactions that create the same table, PostgreSQL
        would fail one, even with IF NOT EXISTS.
        """
        key = f", PRIMARY KEY ({_list(self._key)})" if self._key else ""
        with self._database.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (PREPARE_LOCK,))
            if self._may_create:
                cursor.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({self._columns()}{key})")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {BATCHES} (pipeline text PRIMARY KEY, batch_id bigint NOT NULL)"
            )
            self._check_target(cursor)

    def take(self, batch: DataFrame, batch_id: int) -> None:
        query = query_id(batch)
        if self._is_done(query, batch_id):
            return
        if self._is_first:
            self._clear(query)
            self._is_first = False
        staging = quote_name(f"{_staging_of(query)}{uuid.uuid4().hex[:8]}")
        self._commit(query, batch_id, staging, self._stage(batch, staging))

    def try_out(self, rows: DataFrame) -> None:
        """Like `take`, but without recording the batch, and rolled back."""
        prefix = _trial_of(self._pipeline)
        self._drop(prefix)
        staging = quote_name(f"{prefix}{uuid.uuid4().hex[:8]}")
        try:
            staged = self._stage(rows, staging)
            with self._database.trial() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                cursor.execute(self._merge(staging, [each.attempt for each in staged] or [-1]))
        finally:
            self._drop(prefix)

    def _stage(self, batch: DataFrame, staging: str) -> list[Staged]:
        database, names, kinds = self._database, self._names, self._kinds
        self._create_staging(staging)

        def copy(rows: Iterable[T.Row]) -> Iterator[Staged]:
            yield _stage(database, staging, names, kinds, rows)

        return batch.rdd.mapPartitions(copy).collect()

    def _create_staging(self, staging: str) -> None:
        with self._database.transaction() as cursor:
            cursor.execute(
                f"CREATE UNLOGGED TABLE {staging}"
                f" (_attempt bigint, _row bigint, _offset bigint, {self._columns()})"
            )

    def _columns(self) -> str:
        return ", ".join(
            f"{quote_name(name)} {kind}" for name, kind in zip(self._names, self._kinds, strict=True)
        )

    def _check_target(self, cursor: Any) -> None:
        cursor.execute("SELECT to_regclass(%s) IS NULL", (self._table,))
        if cursor.fetchone()[0]:
            raise PipelineFailed(f"sink.table: there is no table {self._name}, and create is false")
        cursor.execute(f"SELECT * FROM {self._table} LIMIT 0")  # noqa: S608 - the user's own table
        there = [each[0] for each in cursor.description]
        missing = [name for name in self._names if name not in there]
        if missing:
            raise PipelineFailed(
                f"sink.table: {self._name} has no column {', '.join(missing)}; it has {', '.join(there)}"
            )
        cursor.execute(
            "SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute a"
            " JOIN pg_type t ON t.oid = a.atttypid"
            " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"
            " AND t.typcategory <> 'S' AND t.typname <> 'bytea'",
            (self._table,),
        )
        self._target_types = dict(cursor.fetchall())
        if not self._key:
            return
        cursor.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i"
            " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
            " WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL"
            " GROUP BY i.indexrelid",
            (self._table,),
        )
        if not any(set(columns) == set(self._key) for (columns,) in cursor.fetchall()):
            raise PipelineFailed(
                f"sink.key: {self._name} has no primary key or unique index on {', '.join(self._key)};"
                " create one, or set mode: insert"
            )

    def _is_done(self, query: str, batch_id: int) -> bool:
        with self._database.transaction() as cursor:
            cursor.execute(f"SELECT batch_id FROM {BATCHES} WHERE pipeline = %s", (self._noted_as(query),))  # noqa: S608
            row = cursor.fetchone()
            return row is not None and row[0] >= batch_id

    def _clear(self, query: str) -> None:
        """Drop staging tables of earlier runs of the query. A run that still writes them fails."""
        self._drop(_staging_of(query))

    def _drop(self, prefix: str) -> None:
        pattern = prefix.replace("_", r"\_") + "%"
        with self._database.transaction() as cursor:
            cursor.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE %s", (pattern,))
            for (name,) in cursor.fetchall():
                cursor.execute(f"DROP TABLE IF EXISTS {quote_name(name)}")

    def _commit(self, query: str, batch_id: int, staging: str, staged: Sequence[Staged]) -> None:
        with self._database.transaction() as cursor:
            # The row is locked from here on. Another driver with this batch waits, and then finds it
            # recorded.
            cursor.execute(
                f"INSERT INTO {BATCHES} AS noted VALUES (%s, %s)"  # noqa: S608 - a table of ours
                " ON CONFLICT (pipeline) DO UPDATE SET batch_id = excluded.batch_id"
                " WHERE noted.batch_id < excluded.batch_id",
                (self._noted_as(query), batch_id),
            )
            if cursor.rowcount and staged:
                self._check_staged(cursor, staging, staged)
                cursor.execute(self._merge(staging, [each.attempt for each in staged]))
            cursor.execute(f"DROP TABLE {staging}")

    def _check_staged(self, cursor: Any, staging: str, staged: Sequence[Staged]) -> None:
        cursor.execute(f"SELECT _attempt, count(*) FROM {staging} GROUP BY _attempt")  # noqa: S608
        found = dict(cursor.fetchall())
        rows = sum(each.rows for each in staged)
        there = sum(found.get(each.attempt, 0) for each in staged)
        if any(found.get(each.attempt, 0) != each.rows for each in staged):
            raise Away(
                f"sink.table: {there} of {rows} staged rows for {self._name} are in {self._database}; it"
                " crashed since they were staged, and no row of the micro-batch is written: run it again"
            )

    def _noted_as(self, query: str) -> str:
        return f"{self._pipeline}/{query}"

    def _merge(self, staging: str, attempts: Sequence[int]) -> str:
        columns = _list(self._names)
        taken = f"{staging} WHERE _attempt IN ({', '.join(map(str, attempts))})"
        if not self._key:
            return f"INSERT INTO {self._table} ({columns}) SELECT {self._selected()} FROM {taken}"  # noqa: S608
        key = _list(self._key)
        changed = [name for name in self._names if name not in self._key]
        update = ", ".join(f"{quote_name(name)} = excluded.{quote_name(name)}" for name in changed)
        action = f"DO UPDATE SET {update}" if update else "DO NOTHING"
        return (
            f"INSERT INTO {self._table} ({columns})"  # noqa: S608 - the user's own table
            f" SELECT DISTINCT ON ({key}) {self._selected()} FROM {taken}"
            f" ORDER BY {key}, _offset DESC NULLS LAST, _row DESC"
            f" ON CONFLICT ({key}) {action}"
        )

    def _selected(self) -> str:
        """Staged columns. Text is cast to the type of the target, which PostgreSQL does not do implicitly."""
        return ", ".join(
            f"CAST({quote_name(name)} AS {self._target_types[name]})"
            if kind == TEXT and name in self._target_types
            else quote_name(name)
            for name, kind in zip(self._names, self._kinds, strict=True)
        )


def _staging_of(query: str) -> str:
    """Prefix of a query's staging tables; PostgreSQL truncates names at 63 bytes."""
    return f"barnabas_staging_{query.replace('-', '')[:32]}_"


def _trial_of(pipeline: str) -> str:
    """Prefix of the tables for trials of a pipeline's rows."""
    return f"barnabas_trial_{hashlib.sha256(pipeline.encode()).hexdigest()[:32]}_"


def _stage(
    database: Database, staging: str, names: Sequence[str], kinds: Sequence[str], rows: Iterable[T.Row]
) -> Staged:
    """Copy the rows of one attempt at a task into the staging table."""
    from pyspark import TaskContext  # noqa: PLC0415 - only tasks have one

    context = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    width = len(names) + 3
    rows_max = min(ROWS_PER_INSERT, PARAMETERS_MAX // width)
    row_parameters = "(" + ", ".join(["%s"] * width) + ")"
    insert = f"INSERT INTO {staging} (_attempt, _row, _offset, {_list(names)}) VALUES "  # noqa: S608
    with database.transaction() as cursor:
        pending: list[Any] = []
        count = 0
        for at, (offset, *values) in enumerate(rows):
            pending += [attempt, at, offset, *map(_value, values, kinds)]
            count = at + 1
            if len(pending) == rows_max * width:
                cursor.execute(insert + ", ".join([row_parameters] * rows_max), tuple(pending))
                pending = []
        if pending:
            cursor.execute(insert + ", ".join([row_parameters] * (len(pending) // width)), tuple(pending))
    return Staged(attempt, count)


def _value(value: Any, kind: str) -> Any:
    """Value for pg8000. Spark passes timestamps in the worker's time zone, without the zone."""
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone() if kind == MOMENT and value is not None else value


def _list(names: Sequence[str]) -> str:
    return ", ".join(quote_name(name) for name in names)
