"""Arrow columns to record batches.

The bytes of a record are a few varints, the key, a varint, the value and the headers. Each of these is a
column here, varints included. One element-wise join lays the records down back to back. The data buffer of
the joined column *is* the payload, and each batch is a stretch of it. So no record is touched singly, and
each key and value is copied once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_FLAG,
)
from barnabas.records.checksum import crc32c
from barnabas.records.columnar import varints
from barnabas.records.columnar.varints import Ints
from barnabas.records.compression import Codec, compress
from pyspark_barnabas.produce.partitioner import as_binary

RECORD_OVERHEAD_BYTES: Final = 16
"""Upper estimate of a record's varints. It bounds the size of batches and is not exact."""
_CRC_BYTES: Final = 4


class Rows(NamedTuple):
    """Rows for one partition, in order."""

    keys: Any | None
    values: Any
    headers: Any | None
    timestamps_ms: Ints | None = None
    """None when the batch timestamp holds for all records."""


class Producer(NamedTuple):
    producer_id: int = -1
    epoch: int = -1
    is_transactional: bool = False


class Payload(NamedTuple):
    """Uncompressed records of one batch."""

    records: memoryview
    record_count: int
    timestamps_ms: tuple[int, int] | None = None
    """Timestamp of the first record, the base of the deltas, and the largest timestamp."""


def payloads(rows: Rows, cuts: Ints) -> Iterator[Payload]:
    """Record bytes, cut into batches before each of `cuts` (the first is 0)."""
    count = len(rows.values)
    bounds = np.append(cuts, count)
    deltas = np.arange(count, dtype=np.int64) - np.repeat(cuts, np.diff(bounds))
    times = rows.timestamps_ms
    time_deltas = None if times is None else times - np.repeat(times[cuts], np.diff(bounds))
    joined = _joined(rows, deltas, time_deltas)
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset :][: count + 1]
    data = memoryview(joined.buffers()[2])
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        of_batch = None if times is None else (int(times[first]), int(times[first:last].max()))
        yield Payload(data[offsets[first] : offsets[last]], last - first, of_batch)


def sizes(rows: Rows) -> Ints:
    """Estimated size of each record in bytes."""
    size = _lengths(rows.values) + RECORD_OVERHEAD_BYTES
    if rows.keys is not None:
        size = size + np.maximum(_lengths(rows.keys), 0)
    if rows.headers is not None and rows.headers.nbytes:
        size = size + rows.headers.nbytes // max(len(size), 1)
    return size


def cuts_by_size(size: Ints, batch_bytes: int) -> Ints:
    """Positions to cut at, so that no batch exceeds `batch_bytes` unless a single record does."""
    ends = np.cumsum(size)
    cuts = [0]
    while True:
        begin = ends[cuts[-1]] - size[cuts[-1]]
        cut = int(np.searchsorted(ends, begin + batch_bytes, side="right"))
        cut = max(cut, cuts[-1] + 1)
        if cut >= len(size):
            return np.array(cuts, np.int64)
        cuts.append(cut)


def seal(
    payload: Payload, *, codec: Codec, timestamp_ms: int, producer: Producer, base_sequence: int
) -> bytearray:
    """Complete batch, ready to send. `timestamp_ms` is for records without a timestamp."""
    first_ms, max_ms = payload.timestamps_ms or (timestamp_ms, timestamp_ms)
    records: bytes | memoryview = compress(codec, payload.records) if codec else payload.records
    batch = bytearray(HEADER_BYTES + len(records))
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD_BYTES,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        codec | (TRANSACTIONAL_FLAG if producer.is_transactional else 0),
        payload.record_count - 1,
        first_ms,
        max_ms,
        producer.producer_id,
        producer.epoch,
        base_sequence,
        payload.record_count,
    )
    batch[HEADER_BYTES:] = records
    checksum: int = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    batch[CRC_AT : CRC_AT + _CRC_BYTES] = checksum.to_bytes(_CRC_BYTES, "big")
    return batch


def _joined(rows: Rows, deltas: Ints, time_deltas: Ints | None) -> pa.Array:
    values = as_binary(rows.values)
    keys = None if rows.keys is None else as_binary(rows.keys)
    value_lengths = _lengths(values)
    key_lengths = np.full(len(values), -1, np.int64) if keys is None else _lengths(keys)
    header_counts, headers = _headers(rows.headers)
    header_bytes = 0 if headers is None else _lengths(headers)
    lengths = (
        _fixed_bytes(time_deltas)
        + varints.sizes(deltas)
        + varints.sizes(key_lengths)
        + varints.sizes(value_lengths)
    )
    lengths += np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    lengths += varints.sizes(header_counts) + header_bytes
    columns = [_head(lengths, deltas, time_deltas, key_lengths)]
    if keys is not None and keys.null_count < len(keys):
        columns.append(keys)
    columns += [_varint_column(value_lengths), values]
    if headers is None:
        columns.append(pa.repeat(pa.scalar(b"\0", pa.binary()), len(values)))
    else:
        columns += [_varint_column(header_counts), headers]
    empty = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(*columns, empty, null_handling="replace", null_replacement=b"")


def _fixed_bytes(time_deltas: Ints | None) -> Ints | int:
    """Size of attributes and timestamp delta: each is one zero byte if the delta is zero."""
    return 2 if time_deltas is None else 1 + varints.sizes(time_deltas)


def _head(lengths: Ints, deltas: Ints, time_deltas: Ints | None, key_lengths: Ints) -> pa.Array:
    """Length, attributes, timestamp delta, offset delta and key length of each record."""
    widths = (
        _fixed_bytes(time_deltas)
        + varints.sizes(lengths)
        + varints.sizes(deltas)
        + varints.sizes(key_lengths)
    )
    offsets = _offsets(widths)
    out = np.zeros(int(offsets[-1]), np.uint8)
    at = varints.write(out, offsets[:-1].astype(np.int64), lengths)
    at = at + 2 if time_deltas is None else varints.write(out, at + 1, time_deltas)
    at = varints.write(out, at, deltas)
    varints.write(out, at, key_lengths)
    return _binary(offsets, out)


def _varint_column(numbers: Ints) -> pa.Array:
    offsets = _offsets(varints.sizes(numbers))
    out = np.empty(int(offsets[-1]), np.uint8)
    varints.write(out, offsets[:-1].astype(np.int64), numbers)
    return _binary(offsets, out)


def _headers(column: Any | None) -> tuple[Ints, pa.Array | None]:
    """Header count of each record, and the bytes of its headers."""
    none = np.zeros(1, np.int64)
    if column is None or column.null_count == len(column):
        return none, None
    counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    entries = column.flatten()
    if not len(entries):
        return none, None
    keys, values = as_binary(entries.field("key")), as_binary(entries.field("value"))
    if keys.null_count:
        raise ValueError("a header has no key")
    joined = pc.binary_join_element_wise(
        _varint_column(_lengths(keys)),
        keys,
        _varint_column(_lengths(values)),
        values,
        pa.scalar(b"", pa.binary()),
        null_handling="replace",
        null_replacement=b"",
    )
    ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset :][: len(entries) + 1]
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return counts, pa.Array.from_buffers(
        pa.binary(), len(counts), [None, pa.py_buffer(ends[bounds]), joined.buffers()[2]]
    )


def _lengths(column: Any) -> Ints:
    """Length of each value in bytes; -1 for null."""
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = lengths.fill_null(-1)
    found: Ints = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _offsets(widths: Ints) -> Any:
    offsets = np.zeros(len(widths) + 1, np.int32)
    np.cumsum(widths, out=offsets[1:])
    return offsets


def _binary(offsets: Any, data: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
