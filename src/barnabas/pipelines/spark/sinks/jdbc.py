"""A PostgreSQL table; every micro-batch counts once.

Tasks copy their rows into a staging table that only this batch of this run has, each attempt of a
task under its own number, and the driver hears which attempts Spark took. Then, in one transaction, it
notes the batch's number beside the query's id (a checkpoint keeps it for its life, and no other query
ever has it) and moves the rows of those attempts into the target. A batch that is noted already is
left out: of two drivers that run the same query for a moment, one writes it.

Of rows with the same key the last of the batch wins: the one of the highest offset, or, where a
transform left the offsets out, the last that the task read (a partition is one task's: `connector`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.postgres import Database, database_of, quote, quote_name
from barnabas.pipelines.spark.run import PipelineFailed, Run
from barnabas.pipelines.spark.sinks.writing import Writing, query_id
from barnabas.pipelines.spark.transforms.columns import payload, quoted
from barnabas.pipelines.spec.model import Part

BATCHES = "barnabas_batches"
MOMENT = "timestamptz"
ROWS_PER_INSERT = 500
PARAMETERS_MAX = 32_767
"""Of one statement: the protocol counts them in sixteen bits."""
_TYPES: tuple[tuple[type[T.DataType], str], ...] = (
    (T.BooleanType, "boolean"), (T.ByteType, "smallint"), (T.ShortType, "smallint"),
    (T.IntegerType, "integer"), (T.LongType, "bigint"), (T.FloatType, "real"),
    (T.DoubleType, "double precision"), (T.StringType, "text"), (T.BinaryType, "bytea"),
    (T.DateType, "date"), (T.TimestampType, MOMENT), (T.TimestampNTZType, "timestamp"),
    (T.DecimalType, "numeric"),
)  # fmt: skip


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> Writing:  # noqa: ARG001
    names = payload(rows)
    missing = [name for name in part.get("key", []) if name not in names]
    if missing:
        raise PipelineFailed(
            f"the sink's key {', '.join(missing)} is no column; there are {', '.join(names)}"
        )
    kinds = [postgres_type(rows.schema[name].dataType, name) for name in names]
    target = _Target(database_of(part, run), part, run.spec.name, names, kinds)
    target.prepare()
    order = quoted("_offset") if "_offset" in rows.columns else F.lit(None)
    chosen = rows.select(order.cast("bigint").alias("_offset"), *(quoted(name) for name in names))
    return Writing(chosen.writeStream.foreachBatch(target.take))


def postgres_type(kind: T.DataType, name: str) -> str:
    for spark, sql in _TYPES:
        if isinstance(kind, spark):
            return sql
    raise PipelineFailed(
        f"column {name} of type {kind.simpleString()} has no PostgreSQL type; cast or flatten it"
    )


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

    def prepare(self) -> None:
        """The tables, and whether the target takes what will come: before anything is read."""
        key = f", PRIMARY KEY ({_list(self._key)})" if self._key else ""
        with self._database.transaction() as cursor:
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
        table = f"{_staging_of(query)}{uuid.uuid4().hex[:8]}"
        staging, database, names, kinds = quote_name(table), self._database, self._names, self._kinds
        with self._database.transaction() as cursor:
            cursor.execute(
                f"CREATE UNLOGGED TABLE {staging}"
                f" (_attempt bigint, _row bigint, _offset bigint, {self._columns()})"
            )

        def copy(rows: Iterable[T.Row]) -> Iterator[int]:
            yield _stage(database, staging, names, kinds, rows)

        attempts = batch.rdd.mapPartitions(copy).collect()
        self._commit(query, batch_id, staging, attempts)

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
                " make one, or say mode: insert"
            )

    def _is_done(self, query: str, batch_id: int) -> bool:
        with self._database.transaction() as cursor:
            cursor.execute(f"SELECT batch_id FROM {BATCHES} WHERE pipeline = %s", (self._noted_as(query),))  # noqa: S608
            row = cursor.fetchone()
            return row is not None and row[0] >= batch_id

    def _clear(self, query: str) -> None:
        """Drop what earlier runs of the query left half done; one that still goes on fails by it."""
        pattern = _staging_of(query).replace("_", r"\_") + "%"
        with self._database.transaction() as cursor:
            cursor.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE %s", (pattern,))
            for (name,) in cursor.fetchall():
                cursor.execute(f"DROP TABLE IF EXISTS {quote_name(name)}")

    def _commit(self, query: str, batch_id: int, staging: str, attempts: Sequence[int]) -> None:
        with self._database.transaction() as cursor:
            # The row is locked from here on: whoever else has this batch waits, and then finds it noted.
            cursor.execute(
                f"INSERT INTO {BATCHES} AS noted VALUES (%s, %s)"  # noqa: S608 - a table of ours
                " ON CONFLICT (pipeline) DO UPDATE SET batch_id = excluded.batch_id"
                " WHERE noted.batch_id < excluded.batch_id",
                (self._noted_as(query), batch_id),
            )
            if cursor.rowcount and attempts:
                cursor.execute(self._merge(staging, attempts))
            cursor.execute(f"DROP TABLE {staging}")

    def _noted_as(self, query: str) -> str:
        return f"{self._pipeline}/{query}"

    def _merge(self, staging: str, attempts: Sequence[int]) -> str:
        columns = _list(self._names)
        taken = f"{staging} WHERE _attempt IN ({', '.join(map(str, attempts))})"
        if not self._key:
            return f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {taken}"  # noqa: S608
        key = _list(self._key)
        changed = [name for name in self._names if name not in self._key]
        update = ", ".join(f"{quote_name(name)} = excluded.{quote_name(name)}" for name in changed)
        action = f"DO UPDATE SET {update}" if update else "DO NOTHING"
        return (
            f"INSERT INTO {self._table} ({columns})"  # noqa: S608 - the user's own table
            f" SELECT DISTINCT ON ({key}) {columns} FROM {taken}"
            f" ORDER BY {key}, _offset DESC NULLS LAST, _row DESC"
            f" ON CONFLICT ({key}) {action}"
        )


def _staging_of(query: str) -> str:
    """What the names of a query's staging tables begin with; PostgreSQL cuts names at 63."""
    return f"barnabas_staging_{query.replace('-', '')[:32]}_"


def _stage(
    database: Database, staging: str, names: Sequence[str], kinds: Sequence[str], rows: Iterable[T.Row]
) -> int:
    """The rows of one attempt of a task; returns the attempt's number, by which they are known."""
    from pyspark import TaskContext  # noqa: PLC0415 - there is one only here

    context = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    width = len(names) + 3
    rows_max = min(ROWS_PER_INSERT, PARAMETERS_MAX // width)
    place = "(" + ", ".join(["%s"] * width) + ")"
    insert = f"INSERT INTO {staging} (_attempt, _row, _offset, {_list(names)}) VALUES "  # noqa: S608
    with database.transaction() as cursor:
        pending: list[Any] = []
        for at, (offset, *values) in enumerate(rows):
            pending += [attempt, at, offset, *map(_value, values, kinds)]
            if len(pending) == rows_max * width:
                cursor.execute(insert + ", ".join([place] * rows_max), tuple(pending))
                pending = []
        if pending:
            cursor.execute(insert + ", ".join([place] * (len(pending) // width)), tuple(pending))
    return attempt


def _value(value: Any, kind: str) -> Any:
    """As pg8000 takes it. Spark hands a moment over in the worker's own time zone, without saying so."""
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone() if kind == MOMENT and value is not None else value


def _list(names: Sequence[str]) -> str:
    return ", ".join(quote_name(name) for name in names)
