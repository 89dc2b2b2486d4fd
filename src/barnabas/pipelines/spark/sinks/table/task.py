"""The part of the table sink that tasks run: rows into data files, and a report of them to the driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipelines.spark.sinks.table.rows import DELETED, NEWEST
from barnabas.pipelines.tables.data_files import DataFile, Layout, write_files
from barnabas.pipelines.tables.file_names import BatchName
from barnabas.pipelines.tables.schemas import DoesNotFit, conform

REPORT: Final = "files STRING, keys BINARY, attempt INT, newest BIGINT"
_REPORT = pa.schema(
    [("files", pa.string()), ("keys", pa.binary()), ("attempt", pa.int32()), ("newest", pa.int64())]
)
ReportRow = tuple[str | None, bytes, int, int | None]
"""Files, keys, number of the attempt, and time of the newest record, as in `REPORT`.

No files stand for a doubtful record, which Spark has to decode: the task has written nothing.
"""
KEYS_BYTES_MAX: Final = 512 << 20
"""Bound of the keys of a batch, which the driver holds in memory."""


@dataclass(slots=True)
class Report:
    """Files and keys of the task attempts that count."""

    files: list[DataFile] = field(default_factory=list)
    keys: list[pa.Table] = field(default_factory=list)
    is_repeated: bool = False
    """True if a task was tried more than once."""
    is_doubtful: bool = False
    """True if a task has found a record that Spark has to decode, and has written nothing."""
    newest_ms: int | None = None


def writer_of(
    layout: Layout, name: BatchName, key: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Function for `mapInArrow` that writes a task's rows and yields its report."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - only tasks have one

        context = TaskContext.get()
        assert context is not None
        gathering = _Gathering(layout, tuple(key))
        files = write_files(
            gathering.rows(batches), layout, name, context.partitionId(), context.taskAttemptId()
        )
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "files": json.dumps([each.to_document() for each in files]),
                    "keys": gathering.keys_bytes(),
                    "attempt": context.attemptNumber(),
                    "newest": gathering.newest_ms,
                }
            ],
            _REPORT,
        )

    return write


def trial_of(
    layout: Layout, key: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Function for `mapInArrow` that raises the errors of `writer_of` about rows, and writes nothing."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in _Gathering(layout, tuple(key)).rows(batches):
            pass
        yield from ()

    return check


def report_of(rows: Iterable[ReportRow]) -> Report:
    found = Report()
    for files, keys, attempt, newest_ms in rows:
        found.is_repeated = found.is_repeated or attempt > 0
        if files is None:
            found.is_doubtful = True
            continue
        found.files += [DataFile(**each) for each in json.loads(files)]
        if keys:
            found.keys.append(pa.ipc.open_stream(bytes(keys)).read_all())
        if newest_ms is not None:
            found.newest_ms = max(newest_ms, found.newest_ms or 0)
    return found


class _Gathering:
    """Rows in the table's types, while the keys of all rows are noted for the driver."""

    def __init__(self, layout: Layout, key: tuple[str, ...]) -> None:
        self._layout = layout
        self._key = key
        self._keys: list[pa.RecordBatch] = []
        self._keys_bytes = 0
        self.newest_ms: int | None = None

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            newest = pc.max(batch.column(NEWEST)).as_py()
            if newest is not None:
                self.newest_ms = max(newest, self.newest_ms or 0)
            rows = conform(batch, self._layout.schema)
            if self._key:
                self._note_keys(rows)
                rows = rows.filter(pc.invert(batch.column(DELETED)))
            yield rows

    def keys_bytes(self) -> bytes:
        if not self._keys:
            return b""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, self._keys[0].schema, options=options) as stream:
            for each in self._keys:
                stream.write_batch(each)
        return bytes(sink.getvalue().to_pybytes())

    def _note_keys(self, rows: pa.RecordBatch) -> None:
        keys = rows.select(list(self._key))
        for name in self._key:
            if keys.column(name).null_count:
                raise DoesNotFit(
                    f"a row has no key: column {name} is null. A tombstone needs the record's key: key_format"
                    " json with key_schema, or a key of a single column"
                )
        self._keys.append(keys)
        self._keys_bytes += keys.nbytes
        if self._keys_bytes > KEYS_BYTES_MAX:
            raise ValueError("the keys of the micro-batch are too large; set a lower max_offsets_per_trigger")
