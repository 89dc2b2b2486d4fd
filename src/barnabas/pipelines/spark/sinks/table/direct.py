"""Rows from a topic into data files in one Python process, where Spark has nothing to do with them.

Rows that Spark decodes cross between Python and the JVM twice: from the reader, and to the task that writes
Parquet. Without transforms, tasks can read, decode and write by themselves, over Arrow columns. The reader,
its plan of offset ranges and the writer are those of every other micro-batch, and so is the commit.

Only plain records are written in this way (`formats.plain_json`). A task that finds another one writes
nothing, and its micro-batch takes the usual way. That way knows dead letters, counts errors, and words them.
After such a micro-batch, the next ones take the usual way too: 1, 2, 4 and up to 64 of them while records
stay doubtful.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext, TaskContext
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from barnabas.pipelines.spark.context.connector import engine_of, source_options
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.formats.plain_json import Doubtful, decode_plain, is_plain_type
from barnabas.pipelines.spark.formats.text import CORRUPT, NO_ENVELOPE
from barnabas.pipelines.spark.sinks.table.rows import NEWEST, TableRows
from barnabas.pipelines.spark.sinks.table.task import ReportRow
from barnabas.pipelines.spark.state.state_files import read_note
from barnabas.pipelines.spec.model import Engine, Part
from barnabas.pipelines.spec.options.reserved_words import IS_TOMBSTONE
from barnabas.pipelines.state.progress import partition_offsets
from barnabas.pipelines.tables.mark import sources_of
from barnabas.pipelines.tables.schemas import DoesNotFit
from barnabas.protocol.offset_numbers import LATEST
from pyspark_barnabas import DefaultSource
from pyspark_barnabas.readers.offsets import OffsetTree

PAUSE_MAX: Final = 64
"""Bound of the micro-batches that take the usual way after a doubtful one."""
RECORD_COLUMNS: Final = {
    "_key": "key", "_topic": "topic", "_partition": "partition", "_offset": "offset",
    "_timestamp": "timestamp",
}  # fmt: skip
"""The record's own columns of a table, with their names in the reader's batches."""
_SPARK_TYPES: Final = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DoubleType, T.DateType,
    T.TimestampType,
)  # fmt: skip

Write = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Decoding:
    """Conversion of a reader's batches into a table's rows, in tasks."""

    values: pa.Schema
    """Columns of a JSON value, or the column `value` of other formats."""
    format: str
    has_other_fields: bool
    is_key_text: bool
    record_columns: tuple[str, ...]

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield self._decoded(batch)

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column("value")
        if values.null_count:
            raise Doubtful("a record is a tombstone")
        try:
            key = batch.column("key").cast(pa.string()) if self.is_key_text else None
            if self.format == "json":
                columns = decode_plain(values, self.values, has_other_fields=self.has_other_fields)
            else:
                columns = [values.cast(self.values.field(0).type)]
        except pa.ArrowInvalid as error:  # bytes that are not UTF-8
            raise Doubtful(str(error)) from None
        names = list(self.values.names)
        for name in self.record_columns:
            if name == IS_TOMBSTONE:
                columns.append(pa.repeat(False, batch.num_rows))
            else:
                found = batch.column(RECORD_COLUMNS[name])
                columns.append(key if name == "_key" and key is not None else found)
            names.append(name)
        newest_ms = pc.divide(batch.column("timestamp").view(pa.int64()), 1_000)
        return pa.RecordBatch.from_arrays([*columns, newest_ms], [*names, NEWEST])


@dataclass(slots=True)
class Route:
    """The way without Spark for the micro-batches of one run."""

    run: Run
    options: Mapping[str, str]
    decoding: Decoding
    _pause: int = 0
    _left: int = 0
    """Micro-batches that take the usual way before this one is tried again."""

    def write(self, context: SparkContext, batch_id: int, write: Write) -> list[ReportRow] | None:
        """A report of each task; None without an attempt."""
        if self._left:
            self._left -= 1
            return None
        ends = self._journaled(batch_id)
        begins = self._journaled(batch_id - 1) if batch_id else {}
        if ends is None or begins is None or _has_quarantined(self.run.quarantine, begins, ends):
            return None
        reader = DefaultSource(dict(self.options)).streamReader(T.StructType())
        try:
            if not batch_id:
                if not _begins_at_known_offsets(self.run):
                    return None
                begins = reader.initialOffset()
            partitions = list(reader.partitions(begins, ends))
        finally:
            reader.stop()
        if not partitions:
            return []
        task = task_of(reader, self.decoding, write)
        return list(context.parallelize(partitions, len(partitions)).mapPartitions(task).collect())

    def note_outcome(self, *, is_plain: bool) -> None:
        self._pause = 0 if is_plain else min(max(1, 2 * self._pause), PAUSE_MAX)
        self._left = self._pause

    def _journaled(self, batch_id: int) -> OffsetTree | None:
        """End offsets of a micro-batch, with the ids of its topics; None if they are unknown."""
        text = read_note(self.run, f"{self.run.checkpoint()}/offsets/{batch_id}")
        sources = sources_of(text or "")
        return sources[0] if len(sources) == 1 and isinstance(sources[0], dict) else None


def task_of(
    reader: DataSourceStreamReader, decoding: Decoding, write: Write
) -> Callable[[Iterable[InputPartition]], Iterator[ReportRow]]:
    """Function of a task that reports its files, or a doubtful record."""

    def run(partitions: Iterable[InputPartition]) -> Iterator[ReportRow]:
        context = TaskContext.get()
        assert context is not None
        for partition in partitions:
            batches: Any = reader.read(partition)
            try:
                reports = list(write(decoding.rows(batches)))
            except (Doubtful, DoesNotFit):
                yield None, b"", context.attemptNumber(), None
            else:
                for each in reports:
                    yield from (tuple(row.values()) for row in each.to_pylist())

    return run


def route_of(rows: TableRows, run: Run) -> Route | None:
    """The way without Spark for a pipeline; None if there is none."""
    part = run.spec.source
    if not run.is_untransformed or part.type != "topic" or rows.key or rows.partition_by:
        return None
    engine = engine_of(part, run)
    decoding = _decoding_of(rows, part)
    if decoding is None or engine == Engine.JVM.value or part.get("watermark"):
        return None
    columns = ["value", "timestamp", *(["key"] if decoding.is_key_text else [])]
    columns += [RECORD_COLUMNS[name] for name in decoding.record_columns if name in RECORD_COLUMNS]
    options = {**source_options(part, run), "engine": engine, "columns": ",".join(dict.fromkeys(columns))}
    if engine == Engine.SEGMENTS.value:
        # The order of appended rows does not matter, so every core reads.
        options.setdefault("minPartitions", str(run.spark.sparkContext.defaultParallelism))
    return Route(run, options, decoding)


def _decoding_of(rows: TableRows, part: Part) -> Decoding | None:
    """None for formats and types that only Spark decodes."""
    kind = part["format"]
    record_columns = tuple(name for name in rows.columns.names if _is_record(name))
    values = pa.schema([each for each in rows.columns if each.name not in record_columns])
    found = Decoding(
        values, kind, part.get("schema") is not None, part["key_format"] == "text", record_columns
    )
    if part["key_format"] == "json" or part.get("format_options"):
        return None
    if kind in ("text", "raw"):
        return found if values.names == ["value"] else None
    if kind != "json" or part["envelope"] != NO_ENVELOPE or not values.names or CORRUPT in values.names:
        return None
    types = rows.frame.schema
    is_plain = all(_is_plain(types[each.name].dataType) and is_plain_type(each.type) for each in values)
    return found if is_plain else None


def _is_record(name: str) -> bool:
    return name in RECORD_COLUMNS or name == IS_TOMBSTONE


def _is_plain(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_is_plain(each.dataType) for each in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _is_plain(kind.elementType)
    return isinstance(kind, _SPARK_TYPES) or kind == T.StringType()


def _begins_at_known_offsets(run: Run) -> bool:
    """True if another look at the topic finds the offsets at which the first micro-batch begins."""
    part = run.spec.source
    starting = part.get("starting_offsets") or "earliest"
    if part.get("starting_timestamp") or starting == "latest":
        return False
    if not starting.startswith("{"):
        return True
    return all(offset != LATEST for each in json.loads(starting).values() for offset in each.values())


def _has_quarantined(quarantine: Mapping[str, str], begins: OffsetTree, ends: OffsetTree) -> bool:
    first, last = partition_offsets(begins), partition_offsets(ends)
    for record in quarantine:
        topic, partition, offset = record.rsplit("/", 2)
        at = int(partition)
        if first.get(topic, {}).get(at, 0) <= int(offset) < last.get(topic, {}).get(at, 0):
            return True
    return False
