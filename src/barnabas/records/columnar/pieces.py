"""Arrow batches of about a megabyte, from any number of record batches.

The size of a compressed batch shows only after it is inflated. So each batch is estimated with the growth of
the batches before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from barnabas.records.batch import RecordBatch
from barnabas.records.columnar.decode import DecodeTarget, decode_batches

PIECE_BYTES: Final = 1 << 20
"""Batch size that Spark consumes fastest, and that DuckDB and Polars take well."""
GROWTH_UNKNOWN: Final = float(PIECE_BYTES)
"""The first compressed batch is a separate piece; its growth estimates that of the next batches."""


def decode_pieces(
    batches: Iterator[RecordBatch], target: DecodeTarget, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of about a megabyte, cut to the offsets from `start` to `end`.

    The size of a compressed batch shows only after it is inflated. So each batch is estimated with the growth
    of the batches before it.
    """
    group: list[RecordBatch] = []
    group_bytes = 0.0
    growth = GROWTH_UNKNOWN
    for batch in batches:
        if batch.next_offset <= start:
            continue
        if batch.base_offset >= end:
            break
        group.append(batch)
        group_bytes += batch.size_bytes * (growth if batch.codec else 1)
        if group_bytes >= PIECE_BYTES:
            decoded = decode_batches(group, target, start, end)
            growth = _growth(group, decoded) or growth
            yield from _slices(decoded)
            group, group_bytes = [], 0
    if group:
        yield from _slices(decode_batches(group, target, start, end))


def _growth(group: Sequence[RecordBatch], decoded: pa.RecordBatch) -> float:
    """Growth factor from the batches to Arrow, estimated from the rows that the range kept."""
    if not decoded.num_rows:
        return 0
    row_bytes: float = decoded.nbytes / decoded.num_rows
    records, size_bytes = sum(each.record_count for each in group), sum(each.size_bytes for each in group)
    return max(row_bytes * records / size_bytes, 1.0)


def _slices(decoded: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of an Arrow batch: one compressed batch may hold far more than a piece."""
    if not decoded.num_rows:
        return
    pieces = max(1, decoded.nbytes // (2 * PIECE_BYTES))
    rows = -(-decoded.num_rows // pieces)
    for first in range(0, decoded.num_rows, rows):
        yield decoded.slice(first, rows)
