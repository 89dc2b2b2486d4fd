"""File sink: a directory to which every micro-batch is added once (`file_log`).

A micro-batch would write as many files as it has tasks. So rows are gathered first: a directory gets
`files_per_batch` files, and a large one is split at `max_records_per_file`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.columns.columns import payload, quoted
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.sinks.built_sink import BuiltSink, query_id
from barnabas.pipelines.spark.sinks.file_log import FileLog
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.state.durable_files import sync_plan


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> BuiltSink:  # noqa: ARG001
    by = part.get("partition_by", [])
    columns = [name for name in rows.columns if name in payload(rows) or name in by]
    missing = [name for name in by if name not in columns]
    if missing:
        raise PipelineFailed(
            f"partition_by {', '.join(missing)} is not a column; there are {', '.join(columns)}"
        )
    gathered = _gather(rows.select(*(quoted(name) for name in columns)), by, part["files_per_batch"])
    options = {"maxRecordsPerFile": str(part["max_records_per_file"]), **part.get("format_options", {})}
    if part.get("compression"):
        options["compression"] = part["compression"]
    path = str(run.resolved(part, "path"))
    log = FileLog(run.spark, path)
    log.refuse_foreign_files()

    def take(batch: DataFrame, batch_id: int) -> None:
        sync_plan(run.checkpoint(), batch_id)
        writer = batch.write.format(part["format"]).options(**options)
        log.add(writer.partitionBy(*by) if by else writer, query_id(batch), batch_id)

    return BuiltSink(gathered.writeStream.foreachBatch(take))


def _gather(rows: DataFrame, by: list[str], files: int) -> DataFrame:
    """One task per directory and file. Rows of a directory are spread over `files` tasks at random."""
    if not by:
        return rows.repartition(files) if files > 1 else rows.coalesce(1)
    keys = [quoted(name) for name in by]
    return rows.repartition(*keys) if files == 1 else rows.repartition(*keys, (F.rand() * files).cast("int"))
