"""Option `watermark: <column> <delay>` of every source."""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.pipelines.spark.context.run_context import PipelineFailed
from barnabas.pipelines.spec.model import Part


def with_watermark(rows: DataFrame, part: Part) -> DataFrame:
    text = part.get("watermark")
    if text is None:
        return rows
    column, _, delay = text.strip().partition(" ")
    if column not in rows.columns or not delay:
        raise PipelineFailed(
            f"watermark {text!r} is not `<column> <delay>`; columns: {', '.join(rows.columns)}"
        )
    return rows.withWatermark(column, delay)
