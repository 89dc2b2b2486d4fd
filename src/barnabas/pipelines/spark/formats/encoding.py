"""Encoding of columns to records: `key`, `value`, `topic`, `headers` and `timestamp`.

A row that was a tombstone and whose columns are all still null is written as a tombstone, in any format. As
`{}` it would never delete its key in a compacted topic.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from barnabas.pipelines.spark.columns.columns import WHOLE, all_null, is_tombstone, payload, quoted
from barnabas.pipelines.spark.columns.single_message import HEADERS
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.formats.avro import avro_encoder
from barnabas.pipelines.spark.formats.json_text import json_of
from barnabas.pipelines.spark.formats.protobuf import protobuf_encoder
from barnabas.pipelines.spec.model import Part


def encode(rows: DataFrame, part: Part, run: Run) -> DataFrame:
    """Columns key, value, topic, headers and timestamp, ready for a topic."""
    return rows.select(
        encoded_key(rows, part).alias("key"),
        encoded_value(rows, part, run).alias("value"),
        _topic(rows, part).alias("topic"),
        _headers(rows).alias("headers"),
        _timestamp(rows).alias("timestamp"),
    )


def _topic(rows: DataFrame, part: Part) -> Column:
    name = part.get("topic")
    if name is not None:
        return F.lit(name)
    if "_topic" not in rows.columns:
        raise PipelineFailed("the sink names no topic, and the rows have no column _topic")
    return F.col("_topic")


def _headers(rows: DataFrame) -> Column:
    return F.col("_headers").cast(HEADERS) if "_headers" in rows.columns else F.lit(None).cast(HEADERS)


def _timestamp(rows: DataFrame) -> Column:
    """Timestamp of the record; a row without one gets the time of the write."""
    column = F.col("_timestamp") if "_timestamp" in rows.columns else F.lit(None)
    return column.cast("timestamp")


def encoded_key(rows: DataFrame, part: Part) -> Column:
    names = part.get("key")
    if names is None:
        return (
            _bytes(F.col("_key"), rows.schema["_key"].dataType)
            if "_key" in rows.columns
            else F.lit(None).cast("binary")
        )
    missing = [name for name in names if name not in rows.columns]
    if missing:
        raise PipelineFailed(
            f"the sink's key {', '.join(missing)} is not a column; there are {', '.join(rows.columns)}"
        )
    if len(names) == 1:
        return _bytes(quoted(names[0]), rows.schema[names[0]].dataType)
    columns = StructType([rows.schema[name] for name in names])
    return json_of(F.struct(*(quoted(name) for name in names)), columns, {}).cast("binary")


def _bytes(column: Column, kind: DataType) -> Column:
    """Key as bytes: bytes and text unchanged, structs as JSON, other types as their text."""
    if isinstance(kind, BinaryType):
        return column
    text = json_of(column, kind, {}) if isinstance(kind, StructType) else column.cast("string")
    return text.cast("binary")


def encoded_value(rows: DataFrame, part: Part, run: Run) -> Column:
    names = payload(rows)
    whole = names == [WHOLE]
    kind = part["format"]
    if kind in ("raw", "text"):
        return _plain(rows, names, whole=whole, kind=kind)
    if whole and kind == "json":
        return _whole_json(rows.schema[WHOLE].dataType)
    if not names:
        raise PipelineFailed("there are no columns left to write as a value")
    struct = F.struct(*(quoted(name) for name in names))
    if (tombstone := is_tombstone(rows)) is not None:
        struct = F.when(~(tombstone & all_null(rows)), struct)
    columns = StructType([rows.schema[name] for name in names])
    if kind == "json":
        return json_of(struct, columns, part.get("format_options", {})).cast("binary")
    if kind == "csv":
        return F.to_csv(struct, part.get("format_options", {})).cast("binary")
    if kind == "avro":
        return avro_encoder(part, run)(struct, columns)
    return protobuf_encoder(part, run)(struct, columns)


def _plain(rows: DataFrame, names: list[str], *, whole: bool, kind: str) -> Column:
    if not whole:
        raise PipelineFailed(
            f"format {kind} writes one column called value; found {', '.join(names) or 'none'}"
        )
    column = quoted(WHOLE)
    return (
        column
        if isinstance(rows.schema[WHOLE].dataType, BinaryType)
        else column.cast("string").cast("binary")
    )


def _whole_json(kind: DataType) -> Column:
    """Single value as JSON: to_json takes structs and arrays only, so array brackets are removed."""
    column = quoted(WHOLE)
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StructType):
        return json_of(column, kind, {}).cast("binary")
    wrapped = json_of(
        F.array(column if not isinstance(kind, StringType) else column.cast("string")), ArrayType(kind), {}
    )
    return F.when(column.isNotNull(), F.substring(wrapped, F.lit(2), F.length(wrapped) - 2).cast("binary"))
