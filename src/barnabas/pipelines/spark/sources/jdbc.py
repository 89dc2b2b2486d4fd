"""Database source: rows of a table or query, found by a column that only grows.

A Python data source of Spark. The offset is the largest value of the column that was read. The checkpoint
keeps it, so a repeated micro-batch reads the same rows. Rows must not appear below the largest value that was
read. A table that commits out of order needs a column that does not (a sequence assigned at commit, or old
enough times).

A column has the Spark type that holds its values, or else the database's text (jsonb, uuid, time …). A value
that its type cannot hold is refused with its column: NaN or too many digits for a decimal, an infinite
timestamp, text in a number's column of SQLite. With tolerance `all` it becomes null, as in a failed cast.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from barnabas.pipelines.spark.context.run_context import PipelineFailed, Rows, Run
from barnabas.pipelines.spark.databases.addresses import database_of
from barnabas.pipelines.spark.databases.database import Database, SourceColumn
from barnabas.pipelines.spark.formats.decoding import struct_of
from barnabas.pipelines.spark.sources.watermark import with_watermark
from barnabas.pipelines.spec.model import Part, Tolerance

ROWS_PER_ARROW_BATCH = 10_000
BYTES_PER_ARROW_BATCH = 4_000_000


@dataclass(frozen=True, slots=True)
class _Table:
    database: Database
    relation: str
    column: str
    rows_max: int
    columns: StructType = field(default_factory=StructType)
    """Parsed on the driver: tasks have no session to parse a schema with."""
    selected: str = "*"
    is_lenient: bool = False
    column_kind: str = "STRING"
    """Spark's type of the growing column."""

    @property
    def quoted(self) -> str:
        return self.database.quote_name(self.column)

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self.database.reading() as cursor:
            cursor.execute(sql, tuple(values))
            return list(cursor.fetchall())

    def between(self, after: str | None, upto: str | None) -> tuple[str, list[Any]]:
        """Condition for the rows of a range, and its parameters."""
        given = [(sign, value) for sign, value in ((">", after), ("<=", upto)) if value is not None]
        conditions = [f"{self.quoted} {sign} {self.database.placeholder}" for sign, _ in given]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return where, [self.database.bound(value, self.column_kind) for _, value in given]


def read(part: Part, run: Run, *, streaming: bool) -> Rows:
    database = database_of(part, run)
    query = part.get("query")
    relation = database.quote(part["table"]) if query is None else f"({database.raw(query)}) AS q"
    bare = _Table(database, relation, part["column"], part["max_rows_per_trigger"])
    columns = _columns(bare)
    table = replace(
        bare,
        columns=struct_of(", ".join(f"`{each.name}` {each.kind}" for each in columns)),
        selected=", ".join(each.selected for each in columns),
        is_lenient=run.spec.errors.tolerance is Tolerance.ALL,
        column_kind=next(each.kind for each in columns if each.name == bare.column),
    )
    source = _data_source(table)
    run.spark.dataSource.register(source)
    if streaming:
        rows = run.spark.readStream.format(source.name()).load()
        return Rows(with_watermark(rows, part))
    return Rows(run.spark.read.format(source.name()).load())


def _columns(table: _Table) -> list[SourceColumn]:
    with table.database.reading() as cursor:
        found = table.database.described(cursor, table.relation)
    if table.column not in [each.name for each in found]:
        raise PipelineFailed(f"{table.database} {table.relation} has no column {table.column!r}")
    return found


def _data_source(table: _Table) -> type[DataSource]:
    """A separate class for each table: Spark pickles the class with its table."""

    class DatabaseSource(DataSource):
        @classmethod
        def name(cls) -> str:
            # The name is the same in every process that unpickles the class, which `hash` would not give.
            return f"barnabas_jdbc_{zlib.crc32(repr((table.database, table.relation)).encode())}"

        def schema(self) -> StructType:
            return table.columns

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return _WholeReader(table)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
            return _GrowingReader(table)

    return DatabaseSource


class _Range(InputPartition):
    def __init__(self, after: str | None, upto: str | None) -> None:
        super().__init__(None)
        self.after = after
        self.upto = upto


class _WholeReader(DataSourceReader):
    def __init__(self, table: _Table) -> None:
        self._table = table

    def partitions(self) -> list[InputPartition]:
        return [_Range(None, None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _fetch(self._table, partition)


class _GrowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, table: _Table) -> None:
        self._table = table
        self._target: str | None = None
        """End of the trigger `available_now`."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        newest = self._table.database.as_text(f"max({self._table.quoted})")
        ((self._target,),) = self._table.query(f"SELECT {newest} FROM {self._table.relation}")  # noqa: S608

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"after": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._table.rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Column value at the end of the next batch; `start` if there are no new rows."""
        table = self._table
        where, values = table.between(start["after"], self._target)
        most = f"LIMIT {limit.max_rows}" if isinstance(limit, ReadMaxRows) else ""
        batch = f"SELECT {table.quoted} AS c FROM {table.relation} {where} ORDER BY {table.quoted} {most}"  # noqa: S608
        newest = table.database.as_text("max(c)")
        ((found,),) = table.query(f"SELECT {newest} FROM ({batch}) AS batch", values)  # noqa: S608
        return start if found is None else {"after": found}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [_Range(start["after"], end["after"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _fetch(self._table, partition)


def _fetch(table: _Table, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Range)
    where, values = table.between(partition.after, partition.upto)
    schema = to_arrow_schema(table.columns, timezone="UTC")
    with table.database.reading() as cursor:
        query = f"SELECT {table.selected} FROM {table.relation} {where} ORDER BY {table.quoted}"  # noqa: S608
        cursor.execute(query, tuple(values))
        for rows in _pieces(cursor):
            columns = list(zip(*rows, strict=True))
            arrays = [_array(column, each, table) for column, each in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pieces(cursor: Any) -> Iterator[list[Any]]:
    """Rows in pieces of bounded number and size."""
    pending: list[Any] = []
    size = 0
    while (row := cursor.fetchone()) is not None:
        pending.append(row)
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if len(pending) == ROWS_PER_ARROW_BATCH or size > BYTES_PER_ARROW_BATCH:
            yield pending
            pending, size = [], 0
    if pending:
        yield pending


def _array(values: Sequence[Any], column: pa.Field, table: _Table) -> pa.Array:
    try:
        return pa.array(values, type=column.type)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([_fit(value, column, table) for value in values], type=column.type)


def _fit(value: Any, column: pa.Field, table: _Table) -> Any:
    try:
        pa.array([value], type=column.type)
    except (pa.ArrowException, TypeError, ValueError):
        if table.is_lenient:
            return None
        cast = table.database.as_text(table.database.quote_name(column.name))
        raise PipelineFailed(
            f"column {column.name}: {value} does not fit Spark's type {column.type}; leave the row out"
            f" with a 'query', cast the column there ({cast}), or set tolerance: all, which makes it null"
        ) from None
    return value
