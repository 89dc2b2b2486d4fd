"""Database sink: every micro-batch is written to a table once.

Tasks copy their rows into a staging table that belongs to this batch of this run. Each attempt at a task has
its own number there, and reports the count of its staged rows to the driver. One transaction of the driver
then records the batch number beside the query id, and moves the staged rows into the target. Only attempts
that Spark accepted count. The query id is constant for a checkpoint, and unique to the query. A recorded
batch is skipped: of two drivers that run the same query for a moment, one writes it.

A staging table may lose its rows in a crash of the server (`databases.postgres`). So the transaction counts
the staged rows before it moves them. If rows of an attempt are missing, the transaction is rolled back and
Spark runs the batch again. SQLite is a file with one writer: there, the driver stages all rows itself.

Of rows with the same key the last of the batch wins. That is the one with the highest offset. Where a
transform dropped the offsets, it is the last that the task read (one task reads a partition: see
`connector`). A tombstone deletes the row of its key, if the spec says so.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.columns.columns import quoted
from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Run
from barnabas.pipelines.spark.databases.addresses import database_of
from barnabas.pipelines.spark.databases.database import BATCHES, ColumnType, Database, RowRefused
from barnabas.pipelines.spark.databases.sqlite import Sqlite
from barnabas.pipelines.spark.sinks.built_sink import BuiltSink, query_id
from barnabas.pipelines.spark.sinks.table_rows import DELETED, table_rows
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.state.durable_files import sync_plan

ROWS_PER_INSERT = 500
BYTES_PER_INSERT = 1_000_000
"""A larger statement is sent at once. MySQL takes 16 MB of one by default."""
ON_DRIVER = 0
"""Number of the only attempt where the driver stages the rows."""
_STAGED = "_barnabas_attempt bigint, _barnabas_row bigint, _offset bigint, _barnabas_deleted bigint"
_EXTRA = 4
"""Columns of a staging table beside the row's."""


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
    database = database_of(part, run)
    with database.transaction() as cursor:
        if database.columns_of(cursor, BATCHES) is None:
            return -1
        return _noted(database, cursor, f"{run.spec.name}/{query}")


def _noted(database: Database, cursor: Any, noted_as: str) -> int:
    cursor.execute(
        f"SELECT batch_id FROM {BATCHES} WHERE pipeline = {database.placeholder}",  # noqa: S608
        (noted_as,),
    )
    row = cursor.fetchone()
    return -1 if row is None else int(row[0])


def _target(rows: DataFrame, part: Part, run: Run) -> tuple[_Target, DataFrame]:
    """The target table, and the rows in its form."""
    chosen, names, key = table_rows(rows, part)
    database = database_of(part, run)
    kinds = [database.type_of(chosen.schema[name].dataType, name, is_key=name in key) for name in names]
    whole = Part(part.type, {**part.options, "key": key})
    target = _Target(database, whole, run.spec.name, names, kinds)
    target.prepare()
    order = quoted("_offset") if "_offset" in rows.columns else F.lit(None)
    staged = [order.cast("bigint").alias("_offset"), quoted(DELETED).cast("bigint").alias(DELETED)]
    return target, chosen.select(*staged, *(quoted(name) for name in names))


class Staged(NamedTuple):
    """Report of one attempt at a task."""

    attempt: int
    rows: int


class _Target:
    def __init__(
        self,
        database: Database,
        part: Part,
        pipeline: str,
        names: Sequence[str],
        kinds: Sequence[ColumnType],
    ) -> None:
        self._database = database
        self._name: str = part["table"]
        self._table = database.quote(part["table"])
        self._may_create = bool(part.get("create", True))
        self._may_evolve = bool(part.get("evolve", False))
        self._deletes = bool(part.get("delete", False))
        self._key: list[str] = list(part.get("key", [])) if part["mode"] == "upsert" else []
        self._pipeline = pipeline
        self._names = list(names)
        self._kinds = list(kinds)
        self._staging_types = [kind.sql for kind in kinds]
        self._selected = [database.quote_name(name) for name in names]
        self._is_first = True

    def prepare(self) -> None:
        """Create the tables, and check that the target accepts the rows, before any record is read.

        Pipelines that start at once take turns.
        """
        with self._database.preparing() as cursor:
            if self._may_create and self._database.columns_of(cursor, self._name) is None:
                cursor.execute(f"CREATE TABLE {self._table} ({self._created_columns()})")
            cursor.execute(self._database.batches_table)
            self._check_target(cursor)

    def take(self, batch: DataFrame, batch_id: int) -> None:
        query = query_id(batch)
        if self._is_done(query, batch_id):
            return
        if self._is_first:
            self._drop(_staging_of(query))  # of earlier runs; one that still writes them fails
            self._is_first = False
        staging = self._database.quote_name(f"{_staging_of(query)}{uuid.uuid4().hex[:8]}")
        if isinstance(self._database, Sqlite):
            with self._database.session() as cursor:
                staged = self._stage_here(batch, cursor, staging)
                with self._database.locked(cursor):
                    self._enter(cursor, query, batch_id, staging, staged)
        else:
            self._commit(query, batch_id, staging, self._stage(batch, staging))

    def try_out(self, rows: DataFrame) -> None:
        """Like `take`, but without recording the batch, and rolled back."""
        prefix = _trial_of(self._pipeline)
        self._drop(prefix)
        staging = self._database.quote_name(f"{prefix}{uuid.uuid4().hex[:8]}")
        try:
            staged = self._stage(rows, staging) if self._database.stages_in_tasks else []
            with self._database.trial() as cursor:
                if not self._database.stages_in_tasks:
                    staged = self._stage_here(rows, cursor, staging)
                self._database.check_constraints(cursor)
                self._move(cursor, staging, [each.attempt for each in staged] or [-1])
        finally:
            self._drop(prefix)

    # --- staging ---

    def _stage(self, batch: DataFrame, staging: str) -> list[Staged]:
        database, names, kinds = self._database, self._names, self._kinds
        self._create_staging(staging)

        def copy(rows: Iterable[T.Row]) -> Iterator[Staged]:
            yield _stage(database, staging, names, kinds, rows)

        return batch.rdd.mapPartitions(copy).collect()

    def _stage_here(self, batch: DataFrame, cursor: Any, staging: str) -> list[Staged]:
        """Stage the rows on the driver, one partition of them in memory at a time."""
        cursor.execute(self._database.create_staging(staging, self._staged_columns()))
        rows = batch.toLocalIterator()
        count = _insert(cursor, self._database, staging, self._names, self._kinds, rows, ON_DRIVER)
        return [Staged(ON_DRIVER, count)]

    def _create_staging(self, staging: str) -> None:
        with self._database.transaction() as cursor:
            cursor.execute(self._database.create_staging(staging, self._staged_columns()))

    def _staged_columns(self) -> str:
        return f"{_STAGED}, {self._columns(self._staging_types)}"

    # --- target ---

    def _columns(self, kinds: Sequence[str]) -> str:
        named = zip(self._names, kinds, strict=True)
        return ", ".join(f"{self._database.quote_name(name)} {kind}" for name, kind in named)

    def _created_columns(self) -> str:
        kinds = [
            f"{kind.sql} NOT NULL" if name in self._key else kind.sql
            for name, kind in zip(self._names, self._kinds, strict=True)
        ]
        key = f", PRIMARY KEY ({self._database.list_of(self._key)})" if self._key else ""
        return f"{self._columns(kinds)}{key}"

    def _check_target(self, cursor: Any) -> None:
        database = self._database
        found = database.columns_of(cursor, self._name)
        if found is None:
            raise PipelineFailed(f"sink.table: there is no table {self._name}, and create is false")
        there = {self._folded(name) for name in found}
        missing = [name for name in self._names if self._folded(name) not in there]
        if missing and self._may_evolve and not set(missing) & set(self._key):
            for name in missing:
                kind = self._kinds[self._names.index(name)]
                cursor.execute(f"ALTER TABLE {self._table} ADD COLUMN {database.quote_name(name)} {kind.sql}")
        elif missing:
            raise PipelineFailed(
                f"sink.table: {self._name} has no column {', '.join(missing)}; it has {', '.join(found)}"
            )
        self._selected = database.selected(cursor, self._name, self._names, self._kinds)
        self._staging_types = database.staging_types(cursor, self._name, self._names, self._kinds, self._key)
        key = {self._folded(name) for name in self._key}
        unique = database.unique_keys(cursor, self._name) if key else []
        if key and key not in [{self._folded(name) for name in columns} for columns in unique]:
            raise PipelineFailed(
                f"sink.key: {self._name} has no primary key or unique index on {', '.join(self._key)};"
                " create one, or set mode: insert"
            )
        database.check_target(cursor, self._name, self._key, self._names)

    def _folded(self, name: str) -> str:
        return name.lower() if self._database.names_fold else name

    def _is_done(self, query: str, batch_id: int) -> bool:
        with self._database.transaction() as cursor:
            return _noted(self._database, cursor, self._noted_as(query)) >= batch_id

    def _drop(self, prefix: str) -> None:
        with self._database.transaction() as cursor:
            names = self._database.staging_tables(cursor, prefix)
        for name in names:
            self._database.drop_staging(name)

    def _commit(self, query: str, batch_id: int, staging: str, staged: Sequence[Staged]) -> None:
        with self._database.transaction() as cursor:
            self._enter(cursor, query, batch_id, staging, staged)
        with self._database.transaction() as cursor:
            cursor.execute(f"DROP TABLE {staging}")

    def _enter(self, cursor: Any, query: str, batch_id: int, staging: str, staged: Sequence[Staged]) -> None:
        """Record the batch and move its rows, in the caller's transaction."""
        if self._database.mark(cursor, self._noted_as(query), batch_id) and staged:
            self._check_staged(cursor, staging, staged)
            self._move(cursor, staging, [each.attempt for each in staged])

    def _check_staged(self, cursor: Any, staging: str, staged: Sequence[Staged]) -> None:
        cursor.execute(f"SELECT _barnabas_attempt, count(*) FROM {staging} GROUP BY _barnabas_attempt")  # noqa: S608
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

    def _move(self, cursor: Any, staging: str, attempts: Sequence[int]) -> None:
        """Move the staged rows of these attempts into the target."""
        database = self._database
        taken = f"{staging} WHERE _barnabas_attempt IN ({', '.join(map(str, attempts))})"
        self._refuse_rows(cursor, taken)
        if not self._key:
            columns = database.list_of(self._names)
            chosen = f"SELECT {', '.join(self._selected)} FROM {taken}"  # noqa: S608
            cursor.execute(f"INSERT INTO {self._table} ({columns}) {chosen}")
            return
        key = database.list_of(self._key)
        last = (
            f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {database.latest_first})"  # noqa: S608
            f" AS _barnabas_rank FROM {taken}"
        )
        if self._deletes:
            keys = [self._selected[self._names.index(name)] for name in self._key]
            latest = _latest(last, f"{DELETED} = 1")
            cursor.execute(database.delete_rows(self._table, self._key, keys, latest))
        latest = _latest(last, f"{DELETED} = 0")
        cursor.execute(database.replace_rows(self._table, self._names, self._key, self._selected, latest))

    def _refuse_rows(self, cursor: Any, taken: str) -> None:
        """Raises RowRefused for rows that the database would take in another sense."""
        if not self._key:
            return
        names = [self._database.quote_name(name) for name in self._key]
        for refused, reason in (
            ((f"{name} IS NULL" for name in names), "a null in its key, so it would be no row's"),
            (() if self._deletes else ("_barnabas_deleted = 1",), "no value, and sink.delete is not set"),
        ):
            condition = " OR ".join(refused)
            if not condition:
                continue
            cursor.execute(f"SELECT count(*) FROM {taken} AND ({condition})")  # noqa: S608
            if cursor.fetchone()[0]:
                raise RowRefused(f"sink.table: a row for {self._name} has {reason}")


def _latest(last: str, condition: str) -> str:
    return f"(SELECT * FROM ({last}) AS ranked WHERE _barnabas_rank = 1 AND {condition}) AS latest"  # noqa: S608


def _staging_of(query: str) -> str:
    """Prefix of a query's staging tables; PostgreSQL truncates names at 63 bytes."""
    return f"barnabas_staging_{query.replace('-', '')[:32]}_"


def _trial_of(pipeline: str) -> str:
    """Prefix of the tables for trials of a pipeline's rows."""
    return f"barnabas_trial_{hashlib.sha256(pipeline.encode()).hexdigest()[:32]}_"


def _stage(
    database: Database, staging: str, names: Sequence[str], kinds: Sequence[ColumnType], rows: Iterable[T.Row]
) -> Staged:
    """Copy the rows of one attempt at a task into the staging table."""
    from pyspark import TaskContext  # noqa: PLC0415 - only tasks have one

    context = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    with database.transaction() as cursor:
        return Staged(attempt, _insert(cursor, database, staging, names, kinds, rows, attempt))


def _insert(
    cursor: Any,
    database: Database,
    staging: str,
    names: Sequence[str],
    kinds: Sequence[ColumnType],
    rows: Iterable[T.Row],
    attempt: int,
) -> int:
    """Insert rows by statements of bounded size; returns their number."""
    width = len(names) + _EXTRA
    rows_max = max(min(ROWS_PER_INSERT, database.parameters_max // width), 1)
    row_parameters = "(" + ", ".join([database.placeholder] * width) + ")"
    columns = f"_barnabas_attempt, _barnabas_row, _offset, _barnabas_deleted, {database.list_of(names)}"
    insert = f"INSERT INTO {staging} ({columns}) VALUES "  # noqa: S608
    pending: list[Any] = []
    size = count = 0

    def flush() -> None:
        cursor.execute(insert + ", ".join([row_parameters] * (len(pending) // width)), tuple(pending))
        pending.clear()

    for at, (offset, deleted, *values) in enumerate(rows):
        pending += [attempt, at, offset, deleted, *map(database.parameter, values, kinds)]
        size += sum(len(value) for value in values if isinstance(value, (str, bytes, bytearray)))
        count = at + 1
        if len(pending) == rows_max * width or size > BYTES_PER_INSERT:
            flush()
            size = 0
    if pending:
        flush()
    return count
