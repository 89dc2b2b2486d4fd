"""Console sink: rows on the driver's terminal. A repeated micro-batch is shown again.

Showing a few rows makes Spark compute just these, and the reports of the micro-batch would count no others.
So all rows of a batch are computed, once.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.pipelines.spark.columns.columns import quoted
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.sinks.built_sink import BuiltSink
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.spec.options.reserved_words import RESERVED


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> BuiltSink:  # noqa: ARG001
    def show(batch: DataFrame, batch_id: int) -> None:
        rows_max = part["rows"]
        batch.persist()
        try:
            count = batch.count()
            print(f"-- {run.spec.name}, batch {batch_id}")  # noqa: T201 - this sink is the terminal
            _shown(batch, part).show(rows_max, truncate=False)
            if count > rows_max:
                print(f"   {count - rows_max:,} more rows are not shown (option rows)")  # noqa: T201
        finally:
            batch.unpersist()

    return BuiltSink(rows.writeStream.foreachBatch(show))


def _shown(batch: DataFrame, part: Part) -> DataFrame:
    """The columns of the value, so that the table fits on a terminal."""
    values = [name for name in batch.columns if name not in RESERVED]
    return batch if part["record_columns"] or not values else batch.select(*map(quoted, values))
