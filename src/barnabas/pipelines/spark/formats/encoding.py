"""From columns to the bytes of records: `key`, `value`, and where told `topic` and `headers`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from barnabas.pipelines.spark.formats.avro import avro_encoder
from barnabas.pipelines.spark.formats.protobuf import protobuf_encoder
from barnabas.pipelines.spark.run import PipelineFailed, Run
from barnabas.pipelines.spark.transforms.columns import WHOLE, payload, quoted
from barnabas.pipelines.spark.transforms.single_message import HEADERS
from barnabas.pipelines.spec.model import Part


def encode(rows: DataFrame, part: Part, run: Run) -> DataFrame:
    """The columns key, value, topic and headers, ready for a topic."""
    return rows.select(
        _key(rows, part).alias("key"),
        _value(rows, part, run).alias("value"),
        _topic(rows, part).alias("topic"),
        _headers(rows).alias("headers"),
    )


def _topic(rows: DataFrame, part: Part) -> Column:
    name = part.get("topic")
    if name is not None:
        return F.lit(name)
    if "_topic" not in rows.columns:
        raise PipelineFailed("the sink names no topic, and the rows have no column _topic that would")
    return F.col("_topic")


def _headers(rows: DataFrame) -> Column:
    return F.col("_headers").cast(HEADERS) if "_headers" in rows.columns else F.lit(None).cast(HEADERS)


def _key(rows: DataFrame, part: Part) -> Column:
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
            f"the sink's key {', '.join(missing)} is no column; there are {', '.join(rows.columns)}"
        )
    if len(names) == 1:
        return _bytes(quoted(names[0]), rows.schema[names[0]].dataType)
    return F.to_json(F.struct(*(quoted(name) for name in names))).cast("binary")


def _bytes(column: Column, kind: DataType) -> Column:
    """A key as bytes: bytes and text as they are, structs as JSON, all else as its text."""
    if isinstance(kind, BinaryType):
        return column
    return (F.to_json(column) if isinstance(kind, StructType) else column.cast("string")).cast("binary")


def _value(rows: DataFrame, part: Part, run: Run) -> Column:
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
    columns = StructType([rows.schema[name] for name in names])
    if kind == "json":
        return F.to_json(struct, part.get("format_options", {})).cast("binary")
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
    """A single value as JSON: to_json takes structs only, so its brackets are taken off again."""
    column = quoted(WHOLE)
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StructType):
        return F.to_json(column).cast("binary")
    wrapped = F.to_json(F.array(column if not isinstance(kind, StringType) else column.cast("string")))
    return F.when(column.isNotNull(), F.substring(wrapped, F.lit(2), F.length(wrapped) - 2).cast("binary"))
