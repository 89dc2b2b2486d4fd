"""PostgreSQL source: rows of a table or query, found by a column that only grows.

A Python data source of Spark. The offset is the largest value of the column that was read. The checkpoint
keeps it, so a repeated micro-batch reads the same rows. Rows must not appear below the largest value that was
read. A table that commits out of order needs a column that does not (a sequence assigned at commit, or old
enough times).

A column has the Spark type that holds its values, or else PostgreSQL's text (jsonb, uuid, interval …). A
value that its type cannot hold (NaN or too many digits for a decimal, an infinite timestamp) is refused with
its column. With tolerance `all` it becomes null, as in a failed cast.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from barnabas.pipelines.spark.context.postgres import Database, database_of, quote, quote_name
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Rows, Run
from barnabas.pipelines.spark.formats.decoding import struct_of
from barnabas.pipelines.spark.sources.watermark import with_watermark
from barnabas.pipelines.spec.model import Part, Tolerance

ROWS_PER_ARROW_BATCH = 10_000
NUMERIC = 1700
_TYPES = {
    16: "BOOLEAN", 17: "BINARY", 20: "BIGINT", 21: "SMALLINT", 23: "INT", 700: "FLOAT", 701: "DOUBLE",
    1082: "DATE", 1114: "TIMESTAMP_NTZ", 1184: "TIMESTAMP", NUMERIC: "DECIMAL(38, 18)",
    1000: "ARRAY<BOOLEAN>", 1005: "ARRAY<SMALLINT>", 1007: "ARRAY<INT>", 1016: "ARRAY<BIGINT>",
    1021: "ARRAY<FLOAT>", 1022: "ARRAY<DOUBLE>", 1009: "ARRAY<STRING>", 1015: "ARRAY<STRING>",
}  # fmt: skip
"""PostgreSQL's type numbers; all other types are read as text."""
_TEXT = frozenset({18, 19, 25, 1042, 1043})
"""Types that are text already: char, name, text, character, character varying."""
PRECISION_MAX = 38
MODIFIER_BYTES = 4
"""A type's modifier includes its own length."""


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

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self.database.transaction() as cursor:
            cursor.execute(sql, tuple(values))
            return list(cursor.fetchall())


def read(part: Part, run: Run, *, streaming: bool) -> Rows:
    relation = quote(part["table"]) if part.get("table") else f"({part['query'].replace('%', '%%')}) AS q"
    bare = _Table(database_of(part, run), relation, part["column"], part["max_rows_per_trigger"])
    columns = _columns(bare)
    table = replace(
        bare,
        columns=struct_of(", ".join(f"`{each.name}` {each.kind}" for each in columns)),
        selected=", ".join(each.selected for each in columns),
        is_lenient=run.spec.errors.tolerance is Tolerance.ALL,
    )
    source = _data_source(table)
    run.spark.dataSource.register(source)
    if streaming:
        rows = run.spark.readStream.format(source.name()).load()
        return Rows(with_watermark(rows, part))
    return Rows(run.spark.read.format(source.name()).load())


class _Column(NamedTuple):
    name: str
    kind: str
    """Type in Spark."""
    selected: str
    """Expression in the SELECT."""


def _columns(table: _Table) -> list[_Column]:
    with table.database.transaction() as cursor:
        cursor.execute(f"SELECT * FROM {table.relation} LIMIT 0")  # noqa: S608 - the user's own table
        found = [_column(each) for each in cursor._context.columns]
    if table.column not in [each.name for each in found]:
        raise PipelineFailed(f"{table.database} {table.relation} has no column {table.column!r}")
    return found


def _column(described: Mapping[str, Any]) -> _Column:
    name, number = str(described["name"]), int(described["type_oid"])
    quoted = quote_name(name)
    if number == NUMERIC:
        return _Column(name, _decimal(int(described["type_modifier"])), quoted)
    kind = _TYPES.get(number, "STRING")
    is_text = number in _TYPES or number in _TEXT
    return _Column(name, kind, quoted if is_text else f"{quoted}::text")


def _decimal(modifier: int) -> str:
    """`numeric(p, s)` as it is; `numeric` without precision as in Spark's own source."""
    precision, scale = modifier - MODIFIER_BYTES >> 16, modifier - MODIFIER_BYTES & 0x7FF
    if modifier < MODIFIER_BYTES or not 0 <= scale <= precision <= PRECISION_MAX:
        return _TYPES[NUMERIC]
    return f"DECIMAL({precision}, {scale})"


def _data_source(table: _Table) -> type[DataSource]:
    """A separate class for each table: Spark pickles the class with its table."""

    class PostgresSource(DataSource):
        @classmethod
        def name(cls) -> str:
            # The name is the same in every process that unpickles the class, which `hash` would not give.
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
        """End of the trigger `available_now`."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        ((self._target,),) = self._table.query(
            f"SELECT max({quote_name(self._table.column)})::text FROM {self._table.relation}"  # noqa: S608
        )

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"after": None}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._table.rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Column value at the end of the next batch; `start` if there are no new rows."""
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
        rows_wanted = f"{table.relation} {'WHERE ' + where if where else ''} ORDER BY {column}"
        query = f"SELECT {table.selected} FROM {rows_wanted}"  # noqa: S608 - the user's own table
        cursor.execute(query, tuple(value for _, value in given))
        while rows := cursor.fetchmany(ROWS_PER_ARROW_BATCH):
            columns = list(zip(*rows, strict=True))
            arrays = [
                _array(values, each, is_lenient=table.is_lenient)
                for values, each in zip(columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], column: pa.Field, *, is_lenient: bool) -> pa.Array:
    try:
        return pa.array(values, type=column.type)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([_fit(value, column, is_lenient=is_lenient) for value in values], type=column.type)


def _fit(value: Any, column: pa.Field, *, is_lenient: bool) -> Any:
    try:
        pa.array([value], type=column.type)
    except (pa.ArrowException, TypeError, ValueError):
        if is_lenient:
            return None
        raise PipelineFailed(
            f"column {column.name}: {value} does not fit Spark's type {column.type}; leave the row out"
            f" with a 'query', cast the column there ({quote_name(column.name)}::text), or set tolerance:"
            " all, which makes it null"
        ) from None
    return value
