"""Transforms that remember: windows, joins, deduplication. A watermark says for how long."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.run import PipelineFailed, Run
from barnabas.pipelines.spark.sources.readers import READERS
from barnabas.pipelines.spark.transforms.columns import quoted
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.spec.options import duration_ms
from barnabas.pipelines.spec.reserved_words import RESERVED

WATERMARKED = "spark.watermarkDelayMs"
"""Spark notes a column's watermark in its metadata under this name."""


def window(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    """One row per window and group, with the columns window_start, window_end, groups, aggregates."""
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
    """`rows` with a watermark on `time`, unless an earlier transform or the source set one there."""
    if time not in rows.columns:
        raise PipelineFailed(f"there is no column {time!r}; there are {', '.join(rows.columns)}")
    if WATERMARKED in (rows.schema[time].metadata or {}):
        return rows
    return rows.withWatermark(time, delay)


def join(rows: DataFrame, part: Part, run: Run) -> DataFrame:
    source: Part = part["source"]
    streaming = not part["static"]
    other = READERS[source.type](source, replace(run, is_main_source=False), streaming=streaming).good
    other = other.drop(*(name for name in RESERVED if name not in part["on"]))
    how = "left_outer" if part["how"] == "left" else str(part["how"])
    time = part.get("time")
    if time is None or not streaming:
        return rows.join(other, on=part["on"], how=how)
    if time not in other.columns:
        raise PipelineFailed(f"the join's other side has no column {time!r}")
    return _within(rows, other, part, how)


def _within(rows: DataFrame, other: DataFrame, part: Part, how: str) -> DataFrame:
    """Two streams, their rows at most `within` apart; state older than that is forgotten."""
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
