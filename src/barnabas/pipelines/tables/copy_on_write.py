"""Replacement of rows by key, and compaction: files of the present version are written again.

A file is replaced if it has a row with a key of the batch. Its other rows go into a new file, and the
commit removes the old one. Readers need nothing but Parquet. Files whose bounds exclude the batch's keys
are not opened; of others, only the key columns are read first. So a batch costs as much as the files that
its keys are in: little if keys arrive in the order of time, a whole table if they are random.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipelines.tables.data_files import DataFile, Layout, write_files
from barnabas.pipelines.tables.file_names import COMPACT, KEEP, BatchName
from barnabas.pipelines.tables.table import LiveFile, Table

ROW: Final = "__barnabas_row"
SMALL: Final = 0.5
"""A file below this share of the target size is compacted with others."""
FILES_PER_ROUND_MAX: Final = 1_000
"""Small files that one round of maintenance compacts."""


class Rewritten(NamedTuple):
    added: list[DataFile]
    removed: list[LiveFile]


def without_keys(table: Table, keys: pa.Table, layout: Layout, name: BatchName) -> Rewritten:
    """Replace the files that have rows with one of `keys`, whose columns are the key."""
    done = Rewritten([], [])
    if not keys.num_rows:
        return done
    ranges = {each: _bounds(keys.column(each)) for each in keys.column_names}
    key_columns = pa.schema([layout.schema.field(each) for each in keys.column_names])
    try:
        for number, file in enumerate(table.live_files()):
            if not _may_hold(file, ranges):
                continue
            hits = sum(len(_hits(batch, keys)) for batch in table.read(file, key_columns))
            if not hits:
                continue
            if hits != file.rows:
                rows = _others(table.read(file, layout.schema), keys)
                done.added.extend(write_files(rows, layout, name, KEEP, number))
            done.removed.append(file)
    except BaseException:
        layout.storage.remove(each.path for each in done.added)
        raise
    return done


def compacted(table: Table, layout: Layout, name: BatchName) -> Rewritten:
    """Write small files of a partition as one, up to the target size."""
    done = Rewritten([], [])
    try:
        for number, group in enumerate(small_groups(table.live_files(), layout.target_bytes)):
            rows = (batch for file in group for batch in table.read(file, layout.schema))
            done.added.extend(write_files(rows, layout, name, COMPACT, number))
            done.removed.extend(group)
    except BaseException:
        layout.storage.remove(each.path for each in done.added)
        raise
    return done


def small_groups(files: Iterable[LiveFile], target_bytes: int) -> list[list[LiveFile]]:
    """Groups of small files in the same partition, each at most as large as a file should be.

    The bound of a round counts files in groups alone: a thousand partitions with one file are no work.
    """
    small = [each for each in files if each.size < target_bytes * SMALL]
    open_groups: dict[tuple[Any, ...], list[LiveFile]] = {}
    sizes: dict[tuple[Any, ...], int] = {}
    groups = []
    for each in sorted(small, key=lambda file: file.path):
        partition = tuple(each.partition.items())
        group = open_groups.setdefault(partition, [])
        size = sizes.get(partition, 0)
        if group and size + each.size > target_bytes:
            groups.append(group)
            group = open_groups[partition] = []
            size = 0
        group.append(each)
        sizes[partition] = size + each.size
    several = []
    left = FILES_PER_ROUND_MAX
    for group in (*groups, *open_groups.values()):
        taken = group[:left]
        if len(taken) > 1:
            several.append(taken)
            left -= len(taken)
    return several


def _bounds(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    if not _is_ordered(values.type):
        return None
    found = pc.min_max(values)
    return found["min"].as_py(), found["max"].as_py()


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind))


def _may_hold(file: LiveFile, ranges: Mapping[str, tuple[Any, Any] | None]) -> bool:
    for name, wanted in ranges.items():
        known = file.bounds.get(name)
        if wanted is None or known is None or type(known[0]) is not type(wanted[0]):
            continue
        # The bounds of texts may be cut: the least one is a prefix, and the greatest is a prefix counted up.
        if wanted[1] < known[0] or wanted[0] > known[1]:
            return False
    return True


def _others(batches: Iterable[pa.RecordBatch], keys: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        hits = _hits(batch, keys)
        if not len(hits):
            yield batch
        elif len(hits) < batch.num_rows:
            rows = pa.array(range(batch.num_rows), pa.int64())
            yield batch.filter(pc.invert(pc.is_in(rows, hits)))


def _hits(batch: pa.RecordBatch, keys: pa.Table) -> pa.Array:
    """Numbers of the rows with one of the keys."""
    names: Sequence[str] = keys.column_names
    rows = pa.array(range(batch.num_rows), pa.int64())
    if len(names) == 1:
        return rows.filter(pc.is_in(batch.column(names[0]), keys.column(names[0]).combine_chunks()))
    numbered = pa.table([*(batch.column(each) for each in names), rows], names=[*names, ROW])
    plain_keys = pa.table({each: keys.column(each) for each in names})
    return numbered.join(plain_keys, keys=list(names), join_type="left semi").column(ROW).combine_chunks()
