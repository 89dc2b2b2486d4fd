"""Console sink: rows on the driver's terminal. A repeated micro-batch is shown again."""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.sinks.built_sink import BuiltSink
from barnabas.pipelines.spec.model import Part


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> BuiltSink:  # noqa: ARG001
    def show(batch: DataFrame, batch_id: int) -> None:
        print(f"-- {run.spec.name}, batch {batch_id}")  # noqa: T201 - this sink is the terminal
        batch.show(part["rows"], truncate=False)

    return BuiltSink(rows.writeStream.foreachBatch(show))
