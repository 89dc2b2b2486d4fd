"""File sink: a directory to which every micro-batch is added once (`file_log`).

A micro-batch would write as many files as it has tasks. So rows are gathered first: a directory gets
`files_per_batch` files, and a large one is split at `max_records_per_file`.

By default a micro-batch of a few records is one file. One of many has more, so that all cores write: a task
more for every hundred thousand records, as long as there are tasks. Rows stay in the tasks that decode them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.columns.columns import payload, quoted
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.sinks.built_sink import BuiltSink, query_id
from barnabas.pipelines.spark.sinks.file_log import FileLog
from barnabas.pipelines.spark.state.state_files import read_note
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.state.checkpoint_format import source_offsets
from barnabas.pipelines.state.durable_files import sync_plan
from barnabas.pipelines.state.progress import partition_offsets

RECORDS_PER_FILE: Final = 100_000
"""Records of a micro-batch for which one more task writes a file, by default."""
FILES_MAX: Final = 10_000
"""Bound of the files. The first micro-batch of a log that begins late seems to have very many records."""


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> BuiltSink:  # noqa: ARG001
    by = part.get("partition_by", [])
    columns = [name for name in rows.columns if name in payload(rows) or name in by]
    missing = [name for name in by if name not in columns]
    if missing:
        raise PipelineFailed(
            f"partition_by {', '.join(missing)} is not a column; there are {', '.join(columns)}"
        )
    files_per_batch = part.get("files_per_batch")
    options = {"maxRecordsPerFile": str(part["max_records_per_file"]), **part.get("format_options", {})}
    if part.get("compression"):
        options["compression"] = part["compression"]
    path = str(run.resolved(part, "path"))
    log = FileLog(run.spark, path)
    log.refuse_foreign_files()
    sizes = _Sizes(run)

    def take(batch: DataFrame, batch_id: int) -> None:
        sync_plan(run.checkpoint(), batch_id)
        if by or files_per_batch:
            gathered = _gather(batch, by, files_per_batch or 1)
        else:
            gathered = batch.coalesce(files_of(sizes.records(batch_id)))
        writer = gathered.write.format(part["format"]).options(**options)
        log.add(writer.partitionBy(*by) if by else writer, query_id(batch), batch_id)

    return BuiltSink(rows.select(*(quoted(name) for name in columns)).writeStream.foreachBatch(take))


def files_of(records: int) -> int:
    """Number of files of a micro-batch without `files_per_batch`."""
    return min(1 + records // RECORDS_PER_FILE, FILES_MAX)


def _gather(rows: DataFrame, by: list[str], files: int) -> DataFrame:
    """One task per directory and file. Rows of a directory are spread over `files` tasks at random."""
    if not by:
        return rows.repartition(files) if files > 1 else rows.coalesce(1)
    keys = [quoted(name) for name in by]
    return rows.repartition(*keys) if files == 1 else rows.repartition(*keys, (F.rand() * files).cast("int"))


class _Sizes:
    """Records of each micro-batch, by the offsets in its plan. The first one counts from offset 0."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ends: dict[int, dict[str, dict[int, int]]] = {-1: {}}

    def records(self, batch_id: int) -> int:
        """The number; 0 where the source has no offsets."""
        begins, ends = self._ends_of(batch_id - 1), self._ends_of(batch_id)
        self._ends = {-1: {}, batch_id: ends}
        return sum(
            max(0, end - begins.get(topic, {}).get(partition, 0))
            for topic, partitions in ends.items()
            for partition, end in partitions.items()
        )

    def _ends_of(self, batch_id: int) -> dict[str, dict[int, int]]:
        if (known := self._ends.get(batch_id)) is not None:
            return known
        plan = read_note(self._run, f"{self._run.checkpoint()}/offsets/{batch_id}") or ""
        found: dict[str, dict[int, int]] = {}
        for each in source_offsets(plan):
            found |= partition_offsets(each)
        return found
