"""Offset ranges of the unfinished last micro-batch, from Spark's offset log."""

from __future__ import annotations

from pyspark.sql.types import StructType

from barnabas.pipelines.spark.context.connector import source_options
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.recovery.bisect_bad_records import Range
from barnabas.pipelines.spark.state.state_files import batch_numbers, read_note
from barnabas.pipelines.spec.model import Engine
from barnabas.pipelines.state.checkpoint_format import source_offsets, source_topic_ids
from barnabas.pipelines.state.progress import partition_offsets
from pyspark_barnabas import DefaultSource
from pyspark_barnabas.readers.offsets import created_again


def failed_ranges(run: Run) -> list[Range]:
    begun, done = journaled_batches(run), batch_numbers(run, "commits")
    if not begun or begun[-1] in done:
        return []
    end = _journal(run, begun[-1])
    begin = _journal(run, begun[-1] - 1) if begun[-1] > 0 else first_offsets(run)
    for topic in created_again(_topic_ids(run, begun[-1] - 1), _topic_ids(run, begun[-1])):
        begin.pop(topic, None)
    return [
        Range(topic, partition, begin.get(topic, {}).get(partition, 0), offset)
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    ]


def first_offsets(run: Run) -> dict[str, dict[int, int]]:
    """Start of the first batch, which no log holds: the offset that the source gives a new query."""
    options = source_options(run.spec.source, run)
    options["engine"] = "segments" if run.spec.engine is Engine.SEGMENTS else "python"
    reader = DefaultSource(options).streamReader(StructType())
    try:
        return partition_offsets(reader.initialOffset())
    finally:
        reader.stop()


def journaled_batches(run: Run) -> list[int]:
    """Numbers of the started micro-batches."""
    return batch_numbers(run, "offsets")


def _journal(run: Run, batch_id: int) -> dict[str, dict[int, int]]:
    return next(filter(None, map(partition_offsets, source_offsets(_text(run, batch_id)))), {})


def _topic_ids(run: Run, batch_id: int) -> dict[str, str]:
    return source_topic_ids(_text(run, batch_id))


def _text(run: Run, batch_id: int) -> str:
    return read_note(run, f"{run.checkpoint()}/offsets/{batch_id}") or ""
