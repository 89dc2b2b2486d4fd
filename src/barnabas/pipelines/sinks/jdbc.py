"""A PostgreSQL table; every micro-batch counts once.

Tasks copy their rows into a staging table, each under its own number and in its own transaction,
so that a task tried again replaces what it wrote. Then the driver, in one transaction, moves the
staging table into the target and notes the batch's number beside the pipeline's name: a batch
that is noted already is skipped. Of rows with the same key the last of the batch wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    Row,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from barnabas.pipelines.postgres import Database, database_of, quote
from barnabas.pipelines.run import PipelineFailed, Run
from barnabas.pipelines.sinks.writing import Writing
from barnabas.pipelines.spec import Part
from barnabas.pipelines.transforms.columns import payload, quoted

BATCHES = "barnabas_batches"
ROWS_PER_INSERT = 500
_TYPES: tuple[tuple[type[DataType], str], ...] = (
    (BooleanType, "boolean"), (ShortType, "smallint"), (IntegerType, "integer"), (LongType, "bigint"),
    (FloatType, "real"), (DoubleType, "double precision"), (StringType, "text"), (BinaryType, "bytea"),
    (DateType, "date"), (TimestampType, "timestamptz"), (TimestampNTZType, "timestamp"),
    (DecimalType, "numeric"),
)  # fmt: skip


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> Writing:  # noqa: ARG001
    names = payload(rows)
    missing = [name for name in part.get("key", []) if name not in names]
    if missing:
        raise PipelineFailed(
            f"the sink's key {', '.join(missing)} is no column; there are {', '.join(names)}"
        )
    kinds = [postgres_type(rows.schema[name].dataType, name) for name in names]
    target = _Target(database_of(part, run), part, run.spec.name, run.generation, names, kinds)
    target.prepare()
    chosen = rows.select(*(quoted(name) for name in names))
    return Writing(chosen.writeStream.foreachBatch(target.take))


def postgres_type(kind: DataType, name: str) -> str:
    for spark, sql in _TYPES:
        if isinstance(kind, spark):
            return sql
    raise PipelineFailed(
        f"column {name} of type {kind.simpleString()} has no PostgreSQL type; cast or flatten it"
    )


class _Target:
    def __init__(
        self,
        database: Database,
        part: Part,
        pipeline: str,
        generation: int,
        names: Sequence[str],
        kinds: Sequence[str],
    ) -> None:
        self._database = database
        self._table = quote(part["table"])
        self._staging = quote(f"barnabas_staging_{pipeline}".replace(".", "_")[:63])
        self._key: list[str] = part.get("key", []) if part["mode"] == "upsert" else []
        self._pipeline = f"{pipeline}/{generation}"
        self._names = list(names)
        self._kinds = list(kinds)

    def prepare(self) -> None:
        columns = ", ".join(
            f"{quote(name)} {kind}" for name, kind in zip(self._names, self._kinds, strict=True)
        )
        key = f", PRIMARY KEY ({_list(self._key)})" if self._key else ""
        connection = self._database.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}{key})")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {BATCHES} (pipeline text PRIMARY KEY, batch_id bigint NOT NULL)"
            )
            cursor.execute(f"DROP TABLE IF EXISTS {self._staging}")
            cursor.execute(f"CREATE UNLOGGED TABLE {self._staging} (_task integer, _row bigint, {columns})")
            connection.commit()
        finally:
            connection.close()

    def take(self, batch: DataFrame, batch_id: int) -> None:
        if self._is_done(batch_id):
            return
        database, staging, names = self._database, self._staging, self._names

        def copy(rows: Iterator[Row]) -> None:
            _stage(database, staging, names, rows)

        self._clear()
        batch.foreachPartition(copy)
        self._commit(batch_id)

    def _is_done(self, batch_id: int) -> bool:
        connection = self._database.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(f"SELECT batch_id FROM {BATCHES} WHERE pipeline = %s", (self._pipeline,))  # noqa: S608
            row = cursor.fetchone()
            return row is not None and row[0] >= batch_id
        finally:
            connection.close()

    def _clear(self) -> None:
        connection = self._database.connect()
        try:
            connection.cursor().execute(f"TRUNCATE {self._staging}")
            connection.commit()
        finally:
            connection.close()

    def _commit(self, batch_id: int) -> None:
        connection = self._database.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(self._merge())
            cursor.execute(
                f"INSERT INTO {BATCHES} VALUES (%s, %s)"  # noqa: S608 - a table of ours
                " ON CONFLICT (pipeline) DO UPDATE SET batch_id = excluded.batch_id",
                (self._pipeline, batch_id),
            )
            connection.commit()
        finally:
            connection.close()

    def _merge(self) -> str:
        columns = _list(self._names)
        if not self._key:
            return f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {self._staging}"  # noqa: S608
        key = _list(self._key)
        changed = [name for name in self._names if name not in self._key]
        update = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in changed)
        action = f"DO UPDATE SET {update}" if update else "DO NOTHING"
        return (
            f"INSERT INTO {self._table} ({columns})"  # noqa: S608 - the user's own table
            f" SELECT DISTINCT ON ({key}) {columns} FROM {self._staging} ORDER BY {key}, _task, _row DESC"
            f" ON CONFLICT ({key}) {action}"
        )


def _stage(database: Database, staging: str, names: Sequence[str], rows: Iterator[Row]) -> None:
    """The rows of one task, replacing what an earlier attempt of it left."""
    from pyspark import TaskContext  # noqa: PLC0415 - there is one only here

    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    connection = database.connect()
    try:
        cursor = connection.cursor()
        cursor.execute(f"DELETE FROM {staging} WHERE _task = %s", (task,))  # noqa: S608 - a table of ours
        place = "(" + ", ".join(["%s"] * (len(names) + 2)) + ")"
        insert = f"INSERT INTO {staging} (_task, _row, {_list(names)}) VALUES "  # noqa: S608
        pending: list[Any] = []
        count = 0
        for row in rows:
            pending += [task, count, *(_value(each) for each in row)]
            count += 1
            if count % ROWS_PER_INSERT == 0:
                cursor.execute(insert + ", ".join([place] * ROWS_PER_INSERT), tuple(pending))
                pending = []
        if pending:
            cursor.execute(insert + ", ".join([place] * (count % ROWS_PER_INSERT)), tuple(pending))
        connection.commit()
    finally:
        connection.close()


def _value(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _list(names: Sequence[str]) -> str:
    return ", ".join(quote(name) for name in names)
