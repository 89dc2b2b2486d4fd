"""Stateful transforms: windows, joins and deduplication. A watermark bounds their state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.columns.columns import quoted
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.sources.readers import READERS
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.spec.options.option import duration_ms
from barnabas.pipelines.spec.options.reserved_words import IS_TOMBSTONE, RESERVED

WATERMARKED = "spark.watermarkDelayMs"
"""Key in a column's metadata under which Spark keeps its watermark."""


def window(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    """One row per window and group, with the columns window_start, window_end, groups and aggregates."""
    groups = part.get("group_by", [])
    aggregates = part.get("aggregates", {"count": "count(*)"})
    span = F.window(quoted(part["time"]), part["size"], part.get("slide"))
    counted = (
        _late(rows, part["time"], part["watermark"])
        .groupBy(span, *(quoted(name) for name in groups))
        .agg(*(F.expr(expression).alias(name) for name, expression in aggregates.items()))
    )
    return counted.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *(quoted(name) for name in groups),
        *(quoted(name) for name in aggregates),
    )


def deduplicate(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    if part.get("time") is None:
        return rows.dropDuplicates(part["keys"])
    late = _late(rows, part["time"], part["watermark"])
    return late.dropDuplicatesWithinWatermark(part["keys"])


def _late(rows: DataFrame, time: str, delay: str) -> DataFrame:
    """`rows` with a watermark on `time`, unless an earlier transform or the source set one."""
    if time not in rows.columns:
        raise PipelineFailed(f"there is no column {time!r}; there are {', '.join(rows.columns)}")
    if WATERMARKED in (rows.schema[time].metadata or {}):
        return rows
    return rows.withWatermark(time, delay)


def join(rows: DataFrame, part: Part, run: Run) -> DataFrame:
    source: Part = part["source"]
    streaming = not part["static"]
    other = READERS[source.type](source, replace(run, is_main_source=False), streaming=streaming).good
    if source.type == "topic" and not streaming and part["versions"] == "latest":
        other = latest_versions(other, part["on"])
    other = other.drop(*(name for name in RESERVED if name not in part["on"]))
    how = "left_outer" if part["how"] == "left" else str(part["how"])
    time = part.get("time")
    if time is None or not streaming:
        return rows.join(other, on=part["on"], how=how)
    if time not in other.columns:
        raise PipelineFailed(f"the join's other side has no column {time!r}")
    return _within(rows, other, part, how)


def latest_versions(records: DataFrame, on: Sequence[str]) -> DataFrame:
    """Topic as a table: the last record of each key, none if that is a tombstone.

    The key is that of the record; for records without one, the columns `on`. In a partition the highest
    offset is the last. Between partitions, after their number has grown, the latest timestamp is the last.
    """
    key = F.struct(F.col("_key"), F.when(F.col("_key").isNull(), F.struct(*map(quoted, on))))
    row = F.struct(*(quoted(name) for name in records.columns)).alias("row")
    of_partition = (
        records.select(key.alias("of"), row)
        .groupBy("of", F.col("row._topic"), F.col("row._partition"))
        .agg(F.max_by("row", F.col("row._offset")).alias("row"))
    )
    last = of_partition.groupBy("of").agg(F.max_by("row", F.col("row._timestamp")).alias("row"))
    return last.select("row.*").where(~F.col(IS_TOMBSTONE))


def _within(rows: DataFrame, other: DataFrame, part: Part, how: str) -> DataFrame:
    """Join of two streams with rows at most `within` apart; older state is dropped."""
    time = part["time"]
    renamed = other.select(*(quoted(name).alias(f"_other_{name}") for name in other.columns))
    left = _late(rows, time, part["watermark"])
    right = _late(renamed, f"_other_{time}", part["watermark"])
    span = f"INTERVAL {duration_ms(part['within'])} MILLISECOND"
    condition = F.expr(f"`_other_{time}` BETWEEN `{time}` - {span} AND `{time}` + {span}")
    for name in part["on"]:
        condition &= quoted(name) == quoted(f"_other_{name}")
    joined = left.join(right, condition, how)
    if how == "leftsemi":
        return joined
    both = {*part["on"], time}
    added = [name for name in other.columns if name not in both and name not in rows.columns]
    return joined.select(
        *(quoted(name) for name in rows.columns), *(quoted(f"_other_{name}").alias(name) for name in added)
    )
