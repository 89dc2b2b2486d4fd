"""Record batches to Arrow, column by column.

Only the record lengths are walked in sequence, because each gives the position of the next record. A run of
records of equal length, which most producers write, is recognised and skipped at once. Every other field is
read for all records in a few array operations (`varints.read`).

Keys and values are not cut out singly. An array of interleaved offsets over the raw buffer names the wanted
stretches and those between, and one `take` copies the wanted ones.

A batch's bytes come from a peer. The reader verifies the checksum, and then that the fields of every record
fill exactly the record's length. With that no offset points outside the buffer, which Arrow would not notice.

Malformed records raise InvalidRecord, as in `barnabas.records`, the oracle of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.core.errors import InvalidRecord
from barnabas.core.limits import INFLATED_BATCH_BYTES_MAX
from barnabas.records.batch import HEADER_BYTES, RecordBatch
from barnabas.records.columnar import varints
from barnabas.records.columnar.schema import ARROW_TYPES, HEADER_TYPE, HEADERS_TYPE, arrow_schema
from barnabas.records.columnar.varints import Bytes, Ints
from barnabas.records.compression import decompress
from barnabas.records.varint import Buffer

RUN_RECORDS_MIN: Final = 8
"""A shorter run of equal lengths is walked record by record."""
RUN_RECORDS_MAX: Final = 4_096
WALK_RECORDS_MAX: Final = 512
"""Upper bound of records between two searches for a run; the distance doubles while lengths differ."""
OFFSET_MAX: Final = (1 << 63) - 1
TIMESTAMP_MS_MAX: Final = OFFSET_MAX // 1_000
"""Spark counts microseconds in 64 bits: a later timestamp is clipped to this one."""


class DecodeTarget(NamedTuple):
    """Topic-partition that records come from, and the columns to decode."""

    topic: str
    partition: int
    columns: tuple[str, ...]


class _Headers(NamedTuple):
    """All headers of all records, in order."""

    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints


class _Fields(NamedTuple):
    """Fields of all records of some batches. Keys and values are starts and lengths in `source`."""

    source: pa.Buffer
    counts: Ints
    """Record count of each batch. All other arrays are by record."""
    offsets: Ints
    timestamp_deltas: Ints
    keys: tuple[Ints, Ints]
    values: tuple[Ints, Ints]
    header_counts: Ints
    headers: _Headers | None


class _Payloads(NamedTuple):
    """Records of the batches in one buffer, with the start and end position of each batch."""

    buffer: Buffer
    positions: list[int]
    ends: list[int]


def decode_batches(
    batches: Sequence[RecordBatch], target: DecodeTarget, start: int = 0, end: int = OFFSET_MAX
) -> pa.RecordBatch:
    """Records with offsets from `start` (included) to `end` (excluded) of v2 batches in one buffer."""
    fields = _read_fields(batches)
    columns = [_column(name, fields, batches, target) for name in target.columns]
    decoded = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(target.columns))
    offsets = fields.offsets
    if len(offsets) and (offsets[0] < start or offsets[-1] >= end):
        first, last = np.searchsorted(offsets, (start, end))
        return decoded.slice(first, last - first)
    return decoded


def _read_fields(batches: Sequence[RecordBatch]) -> _Fields:
    payloads = _payloads(batches)
    data = np.frombuffer(payloads.buffer, np.uint8)
    counts = np.array([batch.record_count for batch in batches], np.int64)
    starts, ends = _record_bounds(payloads, counts.tolist(), data)
    timestamp_deltas, at = varints.read(data, starts + 1, varints.VARLONG_BYTES_MAX)
    offset_deltas, at = varints.read(data, at)
    key_lengths, key_starts = varints.read(data, at)
    value_lengths, value_starts = varints.read(data, key_starts + np.maximum(key_lengths, 0))
    header_counts, at = varints.read(data, value_starts + np.maximum(value_lengths, 0))
    headers = None
    if header_counts.any():
        headers, at = _read_headers(data, at, header_counts)
    if not np.array_equal(at, ends):
        raise InvalidRecord("A record's fields do not fill its length")
    bases = np.array([batch.base_offset for batch in batches], np.int64)
    return _Fields(
        pa.py_buffer(payloads.buffer),
        counts,
        np.repeat(bases, counts) + offset_deltas,
        timestamp_deltas,
        (key_starts, key_lengths),
        (value_starts, value_lengths),
        header_counts,
        headers,
    )


def _column(name: str, fields: _Fields, batches: Sequence[RecordBatch], target: DecodeTarget) -> pa.Array:  # noqa: PLR0911
    rows = len(fields.offsets)
    match name:
        case "key":
            return _binary(fields.source, *fields.keys)
        case "value":
            return _binary(fields.source, *fields.values)
        case "topic":
            return pa.repeat(pa.scalar(target.topic, pa.string()), rows)
        case "partition":
            return pa.array(np.full(rows, target.partition, np.int32))
        case "offset":
            return pa.array(fields.offsets)
        case "timestamp":
            return _timestamps(batches, fields.counts, fields.timestamp_deltas)
        case "timestampType":
            kinds = np.array([batch.is_log_append_time for batch in batches], np.int32)
            return pa.array(np.repeat(kinds, fields.counts))
        case _:
            return _headers(fields.source, fields.header_counts, fields.headers)


def _payloads(batches: Sequence[RecordBatch]) -> _Payloads:
    """Record bytes of the batches: a view if none is compressed, else one buffer with all inflated."""
    if not any(batch.codec for batch in batches):
        positions = [batch.position + HEADER_BYTES for batch in batches]
        ends = [batch.position + batch.size_bytes for batch in batches]
        return _Payloads(batches[0].buffer, positions, ends)
    pieces: list[Buffer] = []
    positions, ends = [], []
    position = 0
    for batch in batches:
        codec = batch.codec
        payload = batch.payload()
        piece = decompress(codec, payload, INFLATED_BATCH_BYTES_MAX) if codec else payload
        pieces.append(piece)
        positions.append(position)
        position += len(piece)
        ends.append(position)
    return _Payloads(pieces[0] if len(pieces) == 1 else b"".join(pieces), positions, ends)


def _record_bounds(payloads: _Payloads, counts: list[int], data: Bytes) -> tuple[Ints, Ints]:
    """Start of each record, after its length, and its end."""
    runs: list[tuple[Ints, Ints]] = []
    for position, end, count in zip(payloads.positions, payloads.ends, counts, strict=True):
        if count < 0:
            raise InvalidRecord(f"A batch cannot have {count} records")
        runs += _runs_of_batch(payloads.buffer, data, position, end, count)
    if not runs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([starts for starts, _ in runs]), np.concatenate([ends for _, ends in runs])


def _runs_of_batch(
    buffer: Buffer, data: Bytes, position: int, end: int, left: int
) -> Iterator[tuple[Ints, Ints]]:
    window = RUN_RECORDS_MIN
    while left:
        length, start = _read_length(buffer, position)
        if length < 0 or start + length > end:
            raise InvalidRecord("A record is longer than what is left of its batch")
        prefix = start - position
        stride = prefix + length
        run = _run_of_equal_lengths(data, position, prefix, stride, min(left, (end - position) // stride))
        if run >= RUN_RECORDS_MIN:
            starts = np.arange(start, start + run * stride, stride, dtype=np.int64)
            yield starts, starts + length
            position += run * stride
            left -= run
            window = RUN_RECORDS_MIN
            continue
        walked = min(left, window)
        window = min(2 * window, WALK_RECORDS_MAX)
        starts, ends, position = _walk(buffer, position, end, walked)
        yield starts, ends
        left -= walked
    if position != end:
        raise InvalidRecord("A batch holds more bytes than its records")


def _run_of_equal_lengths(data: Bytes, position: int, prefix: int, stride: int, most: int) -> int:
    """Number of consecutive records that begin with the same length bytes as the one at `position`."""
    if most < RUN_RECORDS_MIN or data[position + (RUN_RECORDS_MIN - 1) * stride] != data[position]:
        return 0
    most = min(most, RUN_RECORDS_MAX)
    same = data[position : position + most * stride : stride] == data[position]
    for extra in range(1, prefix):
        same &= (
            data[position + extra : position + extra + (most - 1) * stride + 1 : stride]
            == data[position + extra]
        )
    return most if same.all() else int(same.argmin())


def _walk(buffer: Buffer, position: int, end: int, count: int) -> tuple[Ints, Ints, int]:
    """Bounds of `count` records, walked one by one."""
    starts: list[int] = []
    ends: list[int] = []
    append_start, append_end = starts.append, ends.append
    try:
        for _ in range(count):
            byte = buffer[position]
            position += 1
            if byte < 128 and not byte & 1:
                length = byte >> 1
            else:
                second = buffer[position] if byte > 127 else 128
                if second < 128 and not byte & 1:
                    position += 1
                    length = ((byte & 127) | (second << 7)) >> 1
                else:
                    length, position = _read_length(buffer, position - 1)
            append_start(position)
            position += length
            append_end(position)
            if length < 0 or position > end:
                raise InvalidRecord("A record is longer than what is left of its batch")
    except IndexError:
        raise InvalidRecord("A batch holds fewer records than it says") from None
    return np.array(starts, np.int64), np.array(ends, np.int64), position


def _read_length(buffer: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = buffer[position]
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                value &= 0xFFFF_FFFF
                return (value >> 1) ^ -(value & 1), position
            shift += 7
            if shift > 28:
                raise InvalidRecord("A varint is longer than 5 bytes")
    except IndexError:
        raise InvalidRecord("A batch holds fewer records than it says") from None


def _binary(source: pa.Buffer, starts: Ints, lengths: Ints, kind: pa.DataType | None = None) -> pa.Array:
    """Stretches of `source` as a binary array; a negative length is null."""
    rows = len(starts)
    offsets = np.empty(2 * rows + 1, np.int32)
    nulls = lengths < 0
    has_nulls = bool(nulls.any())
    if has_nulls and nulls.all():
        return pa.nulls(rows, kind or pa.binary())
    offsets[:-1:2] = starts
    offsets[1::2] = starts + (np.maximum(lengths, 0) if has_nulls else lengths)
    offsets[-1] = offsets[-2] if rows else 0
    stretches = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(offsets), source])
    wanted = pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32), mask=nulls if has_nulls else None)
    return stretches.take(wanted)


def _timestamps(batches: Sequence[RecordBatch], counts: Ints, deltas: Ints) -> pa.Array:
    """Timestamps of the records. With LogAppendTime every record has the batch's max timestamp."""
    base = np.array(
        [batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp for batch in batches],
        np.int64,
    )
    stamped = np.array([batch.is_log_append_time for batch in batches])
    if stamped.any():
        deltas = np.where(np.repeat(stamped, counts), 0, deltas)
    milliseconds = np.repeat(base, counts) + deltas
    milliseconds = np.clip(milliseconds, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
    return pa.array(milliseconds * 1_000).view(ARROW_TYPES["timestamp"])


def _read_headers(data: Bytes, at: Ints, counts: Ints) -> tuple[_Headers, Ints]:
    """All headers. Round n reads the n-th header of every record that has it."""
    if (counts < 0).any() or int(counts.max()) > len(data):
        raise InvalidRecord("A record cannot have that many headers")
    total = int(counts.sum())
    if total > len(data):
        raise InvalidRecord("A batch cannot have that many headers")
    first = np.cumsum(counts) - counts
    fields = _Headers(*(np.empty(total, np.int64) for _ in range(4)))
    after = at.copy()
    rows = np.flatnonzero(counts)
    number = 0
    while rows.size:
        key_lengths, key_starts = varints.read(data, after[rows])
        if (key_lengths < 0).any():
            raise InvalidRecord("A record header has no key")
        value_lengths, value_starts = varints.read(data, key_starts + key_lengths)
        after[rows] = value_starts + np.maximum(value_lengths, 0)
        slots = first[rows] + number
        for column, values in zip(
            fields, (key_starts, key_lengths, value_starts, value_lengths), strict=True
        ):
            column[slots] = values
        number += 1
        rows = rows[counts[rows] > number]
    return fields, after


def _headers(source: pa.Buffer, counts: Ints, headers: _Headers | None) -> pa.Array:
    """Headers column. A record without headers has null, as in Spark's own connector."""
    if headers is None:
        return pa.nulls(len(counts), HEADERS_TYPE)
    keys = _binary(source, headers.key_starts, headers.key_lengths)
    values = _binary(source, headers.value_starts, headers.value_lengths)
    entries = pa.StructArray.from_arrays([_text(keys), values], fields=list(HEADER_TYPE))
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), entries, type=HEADERS_TYPE, mask=pa.array(counts == 0))


def _text(keys: Any) -> pa.Array:
    """Header keys as text. Invalid UTF-8 is replaced as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
