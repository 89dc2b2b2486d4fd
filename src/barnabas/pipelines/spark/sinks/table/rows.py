"""Rows of a micro-batch in a table's form: its columns, its key, and the last row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.pipelines.spark.columns.columns import is_tombstone, payload, quoted
from barnabas.pipelines.spark.context.run_context import PipelineFailed
from barnabas.pipelines.spec.options.reserved_words import RESERVED
from barnabas.pipelines.tables.schemas import plain

DELETED: Final = "__barnabas_deleted"
"""True if the last row of its key is a tombstone."""
NEWEST: Final = "__barnabas_newest"
"""Time of the row's record, in milliseconds."""
ORDER: Final = "__barnabas_order"
HELPERS: Final = (DELETED, NEWEST, ORDER)
KEY: Final = "_key"
_WHOLE: Final = "__barnabas_row"
_ORDERED_BY: Final = ("_offset", "_timestamp", "_partition")


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows with the table's columns, and helpers beside them."""

    frame: DataFrame
    columns: pa.Schema
    key: tuple[str, ...]
    """Columns that tell rows apart; empty if every row is added."""
    partition_by: tuple[str, ...]


def table_rows(
    rows: DataFrame, *, key: Sequence[str] | None, partition_by: Sequence[str], has_record_columns: bool
) -> TableRows:
    """`key` is None for a table to which every row is added, and empty for the record's own key."""
    keys = {} if key is None else _keys(rows, key)
    names = list(dict.fromkeys([*keys, *payload(rows)]))
    wanted = RESERVED if has_record_columns else tuple(partition_by)
    names += [each for each in rows.columns if each in wanted and each not in names]
    missing = [each for each in partition_by if each not in names]
    if missing:
        raise PipelineFailed(
            f"partition_by {', '.join(missing)} is not a column; there are {', '.join(names)}"
        )
    tombstone = is_tombstone(rows)
    time = (
        F.col("_timestamp").cast("timestamp")
        if "_timestamp" in rows.columns
        else F.lit(None).cast("timestamp")
    )
    frame = rows.select(
        *(keys.get(each, quoted(each)).alias(each) for each in names),
        (F.lit(False) if tombstone is None else tombstone).alias(DELETED),
        F.unix_millis(time).alias(NEWEST),
        *_order(rows),
    )
    return TableRows(frame, columns_of(frame), tuple(keys), tuple(partition_by))


def last_of_each_key(frame: DataFrame, key: Sequence[str], tasks: int) -> DataFrame:
    """The row with the highest offset of each key; the last one read where the offsets were dropped."""
    if ORDER not in frame.columns:
        # Of a micro-batch alone: Spark numbers no stream.
        frame = frame.withColumn(ORDER, F.struct(F.monotonically_increasing_id()))
    keys = [quoted(each) for each in key]
    others = [quoted(each) for each in frame.columns if each not in key]
    newest = F.max_by(F.struct(*others), quoted(ORDER)).alias(_WHOLE)
    last = frame.repartition(tasks, *keys).groupBy(*keys).agg(newest)
    return last.select(
        *(quoted(each) if each in key else F.col(_WHOLE).getField(each).alias(each) for each in frame.columns)
    )


def gathered(frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Rows sorted by partition, each partition in one task: a task has one open file at a time."""
    if not partition_by:
        return frame
    columns = [quoted(each) for each in partition_by]
    return frame.repartition(*columns).sortWithinPartitions(*columns)


def columns_of(frame: DataFrame) -> pa.Schema:
    """Arrow's types of the columns, without helpers; PipelineFailed for a type that no table has."""
    fields = [each for each in frame.schema.fields if each.name not in HELPERS]
    for each in fields:
        _refuse(each.name, each.dataType)
    found = to_arrow_schema(T.StructType(fields), timezone="UTC")
    return pa.schema([pa.field(each.name, plain(each.type)) for each in found])


def _refuse(name: str, kind: T.DataType) -> None:
    if isinstance(kind, T.StructType):
        for each in kind.fields:
            _refuse(f"{name}.{each.name}", each.dataType)
    elif isinstance(kind, T.ArrayType):
        _refuse(f"{name}[]", kind.elementType)
    elif isinstance(kind, T.MapType):
        _refuse(f"{name}[]", kind.valueType)
    elif not isinstance(kind, _TYPES):
        raise PipelineFailed(
            f"column {name} of type {kind.simpleString()} fits no table; cast it or leave it out"
        )


_TYPES = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DecimalType,
)  # fmt: skip


def _order(rows: DataFrame) -> list[Column]:
    """Order of the rows by their offsets, unless these were dropped."""
    known = [F.col(each) for each in _ORDERED_BY if each in rows.columns]
    return [F.struct(*known).alias(ORDER)] if "_offset" in rows.columns else []


def _keys(rows: DataFrame, key: Sequence[str]) -> dict[str, Column]:
    """Expression of each key column. A tombstone has no value, so its key comes from the record's key."""
    record_key = rows.schema[KEY].dataType if KEY in rows.columns else None
    inside = record_key.fieldNames() if isinstance(record_key, T.StructType) else []
    names = list(key) or (inside or [KEY])
    columns = {}
    for name in names:
        of_key = _of_record_key(rows, name, inside, is_single=len(names) == 1)
        tombstone = is_tombstone(rows)
        if name not in payload(rows):
            if of_key is None:
                raise PipelineFailed(
                    f"the sink's key {name} is not a column; there are {', '.join(payload(rows))}"
                )
            columns[name] = of_key
        elif of_key is None or tombstone is None:
            columns[name] = quoted(name)
        else:
            columns[name] = F.when(tombstone, of_key).otherwise(quoted(name))
    return columns


def _of_record_key(rows: DataFrame, name: str, inside: Sequence[str], *, is_single: bool) -> Column | None:
    if name in inside:
        found = F.col(KEY).getField(name)
    elif name == KEY and KEY in rows.columns:
        return F.col(KEY)
    elif is_single and not inside and KEY in rows.columns:
        found = F.col(KEY).cast("string")
    else:
        return None
    if name not in payload(rows):
        return found if name in inside else None
    return found.try_cast(rows.schema[name].dataType)
