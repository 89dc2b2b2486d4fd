"""Which records the micro-batch holds that was begun last and not finished, from Spark's own journal."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import StructType

from barnabas.core.spark_journal import source_offsets
from barnabas.pipelines.progress import partition_offsets
from barnabas.pipelines.spark.connector import source_options
from barnabas.pipelines.spark.notes import read_note
from barnabas.pipelines.spark.poison import Range
from barnabas.pipelines.spark.run import Run
from barnabas.pipelines.spec.model import Engine
from pyspark_barnabas import DefaultSource


def failed_ranges(run: Run) -> list[Range]:
    begun, done = _batches(run, "offsets"), _batches(run, "commits")
    if not begun or begun[-1] in done:
        return []
    end = partition_offsets(_journal(run, begun[-1]))
    begin = partition_offsets(_journal(run, begun[-1] - 1)) if begun[-1] > 0 else _first_offsets(run)
    return [
        Range(topic, partition, begin.get(topic, {}).get(partition, 0), offset)
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    ]


def _first_offsets(run: Run) -> dict[str, dict[int, int]]:
    """Where the first batch begins, which nobody journals: what the source says to a new query."""
    options = source_options(run.spec.source, run)
    options["engine"] = "segments" if run.spec.engine is Engine.SEGMENTS else "python"
    reader = DefaultSource(options).streamReader(StructType())
    try:
        return partition_offsets(reader.initialOffset())
    finally:
        reader.stop()


def _batches(run: Run, kind: str) -> list[int]:
    """Spark's own file systems are asked, since the checkpoint may lie on any of them."""
    jvm: Any = run.spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{run.checkpoint()}/{kind}")
    files = path.getFileSystem(run.spark.sparkContext._jsc.hadoopConfiguration())
    if not files.exists(path):
        return []
    names = [str(status.getPath().getName()) for status in files.listStatus(path)]
    return sorted(int(name) for name in names if name.isdecimal())


def _journal(run: Run, batch_id: int) -> dict[str, Any]:
    text = read_note(run, f"{run.checkpoint()}/offsets/{batch_id}")
    return next(filter(partition_offsets, source_offsets(text or "")), {})
