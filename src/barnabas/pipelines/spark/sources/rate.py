"""Rate source: numbered rows at a steady rate, with Spark's columns `timestamp` and `value`."""

from __future__ import annotations

from barnabas.pipelines.spark.context.run_context import PipelineFailed, Rows, Run
from barnabas.pipelines.spark.sources.watermark import with_watermark
from barnabas.pipelines.spec.model import Part


def read(part: Part, run: Run, *, streaming: bool) -> Rows:
    if not streaming:
        raise PipelineFailed("a rate source is a stream; it cannot be the static side of a join")
    reader = run.spark.readStream.format("rate").option("rowsPerSecond", part["rows_per_second"])
    return Rows(with_watermark(reader.load(), part))
