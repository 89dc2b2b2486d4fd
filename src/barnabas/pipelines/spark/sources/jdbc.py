"""Rows of a PostgreSQL table or query, taken up by a column that only grows.

A Python data source of Spark: the offset is the largest value of the column that was read, kept
in the checkpoint, so that a micro-batch that is tried again reads the same rows. Rows must not
appear below the largest value that was seen; a table that commits out of order needs a column
that does not (a sequence assigned at commit, or times old enough).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from barnabas.pipelines.spark.formats.decoding import struct_of
from barnabas.pipelines.spark.postgres import Database, database_of, quote, quote_name
from barnabas.pipelines.spark.run import PipelineFailed, Rows, Run
from barnabas.pipelines.spark.sources.watermark import with_watermark
from barnabas.pipelines.spec.model import Part

ROWS_PER_ARROW_BATCH = 10_000
_TYPES = {
    16: "BOOLEAN", 17: "BINARY", 20: "BIGINT", 21: "SMALLINT", 23: "INT", 700: "FLOAT", 701: "DOUBLE",
    1082: "DATE", 1114: "TIMESTAMP_NTZ", 1184: "TIMESTAMP", 1700: "DECIMAL(38, 9)",
}  # fmt: skip
"""PostgreSQL's type numbers; everything else comes as text."""


@dataclass(frozen=True, slots=True)
class _Table:
    database: Database
    relation: str
    column: str
    rows_max: int
    columns: StructType = field(default_factory=StructType)
    """Parsed on the driver: where tasks run, there is no session to parse a schema with."""

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self.database.transaction() as cursor:
            cursor.execute(sql, tuple(values))
            return list(cursor.fetchall())


def read(part: Part, run: Run, *, streaming: bool) -> Rows:
    relation = quote(part["table"]) if part.get("table") else f"({part['query'].replace('%', '%%')}) AS q"
    bare = _Table(database_of(part, run), relation, part["column"], part["max_rows_per_trigger"])
    table = _Table(bare.database, bare.relation, bare.column, bare.rows_max, struct_of(_columns(bare)))
    source = _data_source(table)
    run.spark.dataSource.register(source)
    if streaming:
        rows = run.spark.readStream.format(source.name()).load()
        return Rows(with_watermark(rows, part))
    return Rows(run.spark.read.format(source.name()).load())


def _columns(table: _Table) -> str:
    with table.database.transaction() as cursor:
        cursor.execute(f"SELECT * FROM {table.relation} LIMIT 0")  # noqa: S608 - the user's own table
        found = [(each[0], _TYPES.get(each[1], "STRING")) for each in cursor.description]
    if table.column not in [name for name, _ in found]:
        raise PipelineFailed(f"{table.database} {table.relation} has no column {table.column!r}")
    return ", ".join(f"`{name}` {kind}" for name, kind in found)


def _data_source(table: _Table) -> type[DataSource]:
    """A class of its own for each table: Spark pickles it, table and all, to where it is used."""

    class PostgresSource(DataSource):
        @classmethod
        def name(cls) -> str:
            # The same in every process that unpickles the class, as `hash` would not be.
            return f"barnabas_postgres_{zlib.crc32(repr((table.database, table.relation)).encode())}"

        def schema(self) -> StructType:
            return table.columns

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return _WholeReader(table)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
            return _GrowingReader(table)

    return PostgresSource


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
        """Where the trigger `available_now` ends."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        ((self._target,),) = self._table.query(
            f"SELECT max({quote_name(self._table.column)})::text FROM {self._table.relation}"  # noqa: S608
        )

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"after": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._table.rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The column's value at the end of the next batch; where there is nothing new, `start`."""
        column = quote_name(self._table.column)
        bounds = [(">", start["after"]), ("<=", self._target)]
        given = [(sign, value) for sign, value in bounds if value is not None]
        where = "WHERE " + " AND ".join(f"{column} {sign} %s" for sign, _ in given) if given else ""
        most = f"LIMIT {limit.max_rows}" if isinstance(limit, ReadMaxRows) else ""
        batch = f"SELECT {column} AS c FROM {self._table.relation} {where} ORDER BY {column} {most}"  # noqa: S608
        ((found,),) = self._table.query(
            f"SELECT max(c)::text FROM ({batch}) AS batch",  # noqa: S608 - the user's own table
            [value for _, value in given],
        )
        return start if found is None else {"after": found}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [_Range(start["after"], end["after"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _fetch(self._table, partition)


def _fetch(table: _Table, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Range)
    bounds = [(">", partition.after), ("<=", partition.upto)]
    given = [(sign, value) for sign, value in bounds if value is not None]
    column = quote_name(table.column)
    where = " AND ".join(f"{column} {sign} %s" for sign, _ in given)
    schema = to_arrow_schema(table.columns, timezone="UTC")
    with table.database.transaction() as cursor:
        query = f"SELECT * FROM {table.relation} {'WHERE ' + where if where else ''} ORDER BY {column}"  # noqa: S608
        cursor.execute(query, tuple(value for _, value in given))
        while rows := cursor.fetchmany(ROWS_PER_ARROW_BATCH):
            columns = list(zip(*rows, strict=True))
            arrays = [
                pa.array([_fit(value, each.type) for value in values], type=each.type)
                for values, each in zip(columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fit(value: Any, kind: pa.DataType) -> Any:
    return (
        str(value) if value is not None and pa.types.is_string(kind) and not isinstance(value, str) else value
    )
