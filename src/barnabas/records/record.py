"""Decoding of the single records inside a batch.

The request path appends and sends whole batches. Compaction, the coordinators that replay
their partitions, the tools and some checks of a topic's configs decode records.

    length varint | attributes i8 | timestamp delta varlong | offset delta varint
    | key length varint (-1: null), key | value length, value
    | header count, then for each: key length, key, value length, value

A batch is inflated whole, under a cap, and then walked without copies until a key or value is
taken out. Malformed records raise InvalidRecord; offsets and timestamps are absolute.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.core.errors import InvalidRecord
from barnabas.core.limits import INFLATED_BATCH_BYTES_MAX
from barnabas.records.batch import RecordBatch
from barnabas.records.compression import decompress
from barnabas.records.varint import Buffer, read_varint, read_varlong, wrap_int64

Header = tuple[str, bytes | None]

ABORT: Final = 0
COMMIT: Final = 1
CONTROL_KEY: Final = struct.Struct(">hh")
END_TRANSACTION_VALUE: Final = struct.Struct(">hi")

HEADERS_UNBOUNDED: Final = 1 << 31
"""More than a batch has room for. A header of two bytes takes a hundred times its size in memory."""
HEADER_KEY_ERRORS: Final = "surrogateescape"
"""Header keys should be UTF-8; one that is not survives decoding and encoding."""


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class EndTransactionMarker(NamedTuple):
    """Control record at the end of a producer's transaction."""

    is_commit: bool
    coordinator_epoch: int


def inflate_payload(batch: RecordBatch, limit_bytes: int = INFLATED_BATCH_BYTES_MAX) -> Buffer:
    """Bytes of the records; the batch's own when it is not compressed."""
    codec = batch.codec
    return decompress(codec, batch.payload(), limit_bytes) if codec else batch.payload()


def iterate_records(
    batch: RecordBatch, limit_bytes: int = INFLATED_BATCH_BYTES_MAX, headers_max: int = HEADERS_UNBOUNDED
) -> Iterator[Record]:
    """Every record of the batch, with copies of keys and values. INVALID_RECORD for one with more headers."""
    payload = inflate_payload(batch, limit_bytes)
    base_offset = batch.base_offset
    base_timestamp = batch.base_timestamp
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    position = 0
    for _ in range(batch.record_count):
        length, start = read_varint(payload, position)
        position = start + length
        if length < 0 or position > len(payload):
            raise InvalidRecord("A record is longer than what is left of its batch")
        timestamp_delta, at = read_varlong(payload, start + 1)
        offset_delta, at = read_varint(payload, at)
        timestamp = wrap_int64(base_timestamp + timestamp_delta) if append_time is None else append_time
        yield read_record(payload, at, position, base_offset + offset_delta, timestamp, headers_max)
    if position != len(payload):
        raise InvalidRecord("A batch holds more bytes than its records")


def read_record(
    payload: Buffer,
    position: int,
    end: int,
    offset: int,
    timestamp: int,
    headers_max: int = HEADERS_UNBOUNDED,
) -> Record:
    """The record whose key begins at `position` and which ends at `end`."""
    key, at = _read_bytes(payload, position, end)
    value, at = _read_bytes(payload, at, end)
    count, at = read_varint(payload, at)
    headers: tuple[Header, ...] = ()
    if count:
        if count > headers_max:
            raise InvalidRecord(f"A record has {count:,} headers; at most {headers_max:,} are decoded here")
        headers, at = _read_headers(payload, at, end, count)
    if at != end:
        raise InvalidRecord("A record's fields do not fill its length")
    return Record(offset, timestamp, key, value, headers)


def _read_bytes(payload: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position)
    if length < 0:
        return None, position
    after = position + length
    if after > end:
        raise InvalidRecord("A key or value runs past the end of its record")
    return bytes(payload[position:after]), after


def _read_headers(payload: Buffer, position: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    if not 0 <= count <= end - position:
        raise InvalidRecord(f"A record cannot have {count} headers")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(payload, position, end)
        if key is None:
            raise InvalidRecord("A record header has no key")
        value, position = _read_bytes(payload, position, end)
        headers.append((key.decode(errors=HEADER_KEY_ERRORS), value))
    return tuple(headers), position


def end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a record of a control batch; None for other and future control types."""
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        raise InvalidRecord("A control record's key is too short")
    version, kind = CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidRecord(f"A control record has version {version}")
    if kind not in {ABORT, COMMIT}:
        return None
    if record.value is None or len(record.value) < END_TRANSACTION_VALUE.size:
        raise InvalidRecord("An end-of-transaction marker is too short")
    _version, coordinator_epoch = END_TRANSACTION_VALUE.unpack_from(record.value)
    return EndTransactionMarker(kind == COMMIT, coordinator_epoch)
