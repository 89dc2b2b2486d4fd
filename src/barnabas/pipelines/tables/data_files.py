"""Data files: Arrow batches become Parquet files, by partition and of a target size.

A task writes into files with names of its own (`file_names`) and reports them. A file counts once the
driver has committed it. A task that fails removes what it wrote; a task that dies leaves files that the
driver removes after its commit.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.pipelines.tables.file_names import BatchName, partition_directory
from barnabas.pipelines.tables.statistics import statistics_of
from barnabas.pipelines.tables.storage import Storage

ROW_GROUP_BYTES_MAX = 64 << 20
"""Rows that a writer gathers in memory before it compresses them into a row group."""
ROW_GROUP_ROWS_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """A written file that no commit lists yet."""

    path: str
    """Relative to the directory of the table."""
    size: int
    rows: int
    partition: Mapping[str, str | None]
    statistics: Mapping[str, Any]

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Layout:
    """Directory and format of a table's files."""

    storage: Storage
    schema: pa.Schema
    """Columns of the rows, in the table's types. Field ids of Iceberg are in the metadata of its fields."""
    partition_by: tuple[str, ...] = ()
    has_partition_columns: bool = True
    """False if files leave out the partition columns, as Delta's do."""
    directory: str = ""
    """Directory of data files below the root, with a slash at its end."""
    target_bytes: int = 128 << 20
    codec: str = "zstd"

    @property
    def file_schema(self) -> pa.Schema:
        if self.has_partition_columns:
            return self.schema
        return pa.schema([each for each in self.schema if each.name not in self.partition_by])


def write_files(
    batches: Iterable[pa.RecordBatch], layout: Layout, name: BatchName, task: int | str, attempt: int = 0
) -> list[DataFile]:
    """Write rows that are sorted by partition. On an error, nothing of them is left."""
    writer = _Writer(layout, name, task, attempt)
    try:
        for batch in batches:
            for values, rows in by_partition(batch, layout.partition_by):
                writer.add(values, rows)
        writer.close_file()
    except BaseException:
        writer.abandon()
        raise
    layout.storage.sync(each.path for each in writer.written)
    return writer.written


def by_partition(
    batch: pa.RecordBatch, names: tuple[str, ...]
) -> Iterator[tuple[dict[str, Any], pa.RecordBatch]]:
    """Runs of rows with the same partition values."""
    if not batch.num_rows:
        return
    if not names:
        yield {}, batch
        return
    changes = np.zeros(batch.num_rows, bool)
    changes[0] = True
    for name in names:
        codes = batch.column(name).dictionary_encode(null_encoding="encode").indices.to_numpy()
        changes[1:] |= codes[1:] != codes[:-1]
    begins = [*np.flatnonzero(changes).tolist(), batch.num_rows]
    for begin, end in pairwise(begins):
        values = {name: batch.column(name)[begin].as_py() for name in names}
        yield values, batch.slice(begin, end - begin)


def partition_text(value: Any) -> str | None:
    """A partition value as Delta's log and directories show it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo is None else value.astimezone(dt.UTC)
        return moment.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


@dataclass(slots=True)
class _Writer:
    layout: Layout
    name: BatchName
    task: int | str
    attempt: int
    written: list[DataFile] = field(default_factory=list)
    _number: int = 0
    _partition: dict[str, Any] = field(default_factory=dict)
    _path: str = ""
    _stream: Any = None
    _parquet: Any = None
    _footers: list[Any] = field(default_factory=list)
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _waiting_bytes: int = 0
    _waiting_rows: int = 0

    def add(self, partition: dict[str, Any], rows: pa.RecordBatch) -> None:
        if self._stream is not None and partition != self._partition:
            self.close_file()
        if self._stream is None:
            self._open(partition)
        self._waiting.append(rows.select(self.layout.file_schema.names))
        self._waiting_bytes += rows.nbytes
        self._waiting_rows += rows.num_rows
        if self._waiting_bytes >= ROW_GROUP_BYTES_MAX or self._waiting_rows >= ROW_GROUP_ROWS_MAX:
            self._flush()
            if self._stream.tell() >= self.layout.target_bytes:
                self.close_file()

    def close_file(self) -> None:
        if self._stream is None:
            return
        self._flush()
        self._parquet.close()
        size = self._stream.tell()
        self._stream.close()
        self._stream = None
        (footer,) = self._footers
        self.written.append(
            DataFile(
                self._path,
                size,
                footer.num_rows,
                {name: partition_text(value) for name, value in self._partition.items()},
                statistics_of(footer),
            )
        )

    def abandon(self) -> None:
        """Remove all files of this attempt."""
        if self._stream is not None:
            with suppress(Exception):  # the error that brought us here counts
                self._parquet.close()
            with suppress(Exception):
                self._stream.close()
            self._stream = None
            self.layout.storage.remove([self._path])
        self.layout.storage.remove(each.path for each in self.written)

    def _open(self, partition: dict[str, Any]) -> None:
        texts = {name: partition_text(value) for name, value in partition.items()}
        file = self.name.file(self.task, self.attempt, self._number, self.layout.codec)
        self._path = f"{self.layout.directory}{partition_directory(texts)}{file}"
        self._number += 1
        self._partition = partition
        self._footers = []
        self._stream = self.layout.storage.open_output(self._path)
        self._parquet = pq.ParquetWriter(
            self._stream,
            self.layout.file_schema,
            compression=self.layout.codec,
            metadata_collector=self._footers,
        )

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self.layout.file_schema)
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0
        self._parquet.write_table(table, row_group_size=max(table.num_rows, 1))
