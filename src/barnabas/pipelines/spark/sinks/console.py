"""Rows on the driver's terminal. A micro-batch that is tried again is shown again."""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.pipelines.spark.run import Run
from barnabas.pipelines.spark.sinks.writing import Writing
from barnabas.pipelines.spec.model import Part


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> Writing:  # noqa: ARG001
    def show(batch: DataFrame, batch_id: int) -> None:
        print(f"-- {run.spec.name}, batch {batch_id}")  # noqa: T201 - this sink is the terminal
        batch.show(part["rows"], truncate=False)

    return Writing(rows.writeStream.foreachBatch(show))
