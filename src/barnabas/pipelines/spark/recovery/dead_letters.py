"""Dead letters: records that could not be decoded or that broke a transform, written to their own topic.

Bytes, key and headers are unchanged. Additional headers, named as in Connect, hold the record's coordinates
and the error. With a topic sink the letters are part of the output of the good rows, and so of the same
transaction. Other sinks have a second query for them.

The headers make a letter larger than its record. A dead-letter topic that the pipeline creates takes records
as large as the source's, plus the headers. In another topic, a letter that is too large goes without its
value and says so; the record itself is still at the coordinates in the headers.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.columns.single_message import HEADERS
from barnabas.pipelines.spark.context.connector import own_options, source_options
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.context.topics import (
    BYTES_MAX,
    MESSAGE_BYTES_MAX,
    ensure_topics,
    message_bytes_max,
)
from barnabas.pipelines.spark.formats.decoding import is_quarantined
from barnabas.pipelines.spark.sinks.records import sink_options

PREFIX = "__connect.errors."
ERROR_CHARACTERS_MAX = 4_000
ROOM_BYTES = 64 * 1024
"""Space for the headers of a letter, in a topic created for letters."""
OTHER_BYTES_MAX = 2_048
"""Bound of the batch header and of the headers with the coordinates: names have bounds."""
CONVERTED, TRANSFORMED, PUT = "VALUE_CONVERTER", "TRANSFORMATION", "TASK_PUT"
"""Stages of Connect at which a record fails."""
REFUSED = "the sink refuses the row: "
"""Beginning of the reason in the quarantine, for rows that a database refuses."""
HEADER_BYTES_MAX = 10
"""Bound of the lengths before a header's name and value."""


def dead_letters(bad: DataFrame, run: Run) -> DataFrame:
    """Columns key, value, topic, headers and timestamp, ready for a topic."""
    spec = run.spec
    value = F.col("value").cast("binary")
    key = (F.col("key") if "key" in bad.columns else F.lit(None)).cast("binary")
    error = F.substring(F.col("error"), 1, ERROR_CHARACTERS_MAX)
    bytes_max = letter_bytes_max(run)
    size = _length(value) + _length(key) + _headers_length(bad) + 2 * F.octet_length(error) + OTHER_BYTES_MAX
    left_out = F.concat(
        error,
        F.format_string(
            f"; the value of %s bytes is left out: the letter would exceed max.message.bytes {bytes_max}",
            _length(value),
        ),
    )
    error = F.when(size > bytes_max, left_out).otherwise(error)
    stage = _stage(bad, run)
    context = {
        "topic": _of(bad, "topic"),
        "partition": _of(bad, "partition"),
        "offset": _of(bad, "offset"),
        "connector.name": F.lit(spec.name),
        "task.id": F.lit("0"),
        "stage": stage,
        "class.name": F.concat(F.lit("barnabas.pipelines.spark."), _module(stage, run)),
        "exception.class.name": F.lit("org.apache.kafka.connect.errors.DataException"),
        "exception.message": error,
        "exception.stacktrace": error,
    }
    added = F.array(
        *(
            F.struct(F.lit(PREFIX + name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in context.items()
        )
    ).cast(HEADERS)
    empty = F.array().cast(HEADERS)
    original = F.coalesce(F.col("headers").cast(HEADERS), empty) if "headers" in bad.columns else empty
    return bad.select(
        key.alias("key"),
        F.when(size <= bytes_max, value).alias("value"),
        F.lit(spec.errors.dead_letter_topic).alias("topic"),
        F.concat(original, added).alias("headers"),
        _of(bad, "timestamp").cast("timestamp").alias("timestamp"),
    )


def _stage(bad: DataFrame, run: Run) -> Column:
    """Connect's stage: a record in quarantine was decoded, and failed in the transforms or at the sink."""
    if not run.quarantine or "offset" not in bad.columns:
        return F.lit(CONVERTED)
    is_put = F.col("error").startswith(REFUSED)
    return F.when(~is_quarantined(run), CONVERTED).when(is_put, PUT).otherwise(F.lit(TRANSFORMED))


def _module(stage: Column, run: Run) -> Column:
    decoder = F.lit(f"formats.{run.spec.source.get('format', 'files')}")
    sink = F.lit(f"sinks.{run.spec.sink.type}")
    return F.when(stage == CONVERTED, decoder).when(stage == PUT, sink).otherwise(F.lit("transforms"))


def letter_bytes_max(run: Run) -> int:
    """Message size limit of the dead-letter topic, which is created if missing."""
    name = run.spec.errors.dead_letter_topic
    assert name is not None
    sink, source = run.spec.sink, run.spec.source
    options = sink_options(sink, run) if sink.type == "topic" else own_options(run)
    found = message_bytes_max(options, [name])
    if not found:
        wanted = MESSAGE_BYTES_MAX
        if source.type == "topic" and source.get("topics"):
            read = message_bytes_max(source_options(source, run), source["topics"])
            wanted = max([wanted, *read.values()])
        ensure_topics(options, [name], {BYTES_MAX: str(wanted + ROOM_BYTES)})
        found = message_bytes_max(options, [name])
    return found.get(name, MESSAGE_BYTES_MAX)


def _length(column: Column) -> Column:
    return F.coalesce(F.octet_length(column), F.lit(0))


def _headers_length(bad: DataFrame) -> Column:
    if "headers" not in bad.columns:
        return F.lit(0)
    each = F.transform(
        F.coalesce(F.col("headers").cast(HEADERS), F.array().cast(HEADERS)),
        lambda header: _length(header["key"]) + _length(header["value"]) + HEADER_BYTES_MAX,
    )
    return F.aggregate(each, F.lit(0), lambda total, length: total + length)


def _of(bad: DataFrame, name: str) -> Column:
    return F.col(name) if name in bad.columns else F.lit(None)
