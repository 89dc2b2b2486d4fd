"""Record scans of compaction: `map_keys` and `keep_latest`.

They are the hot loops of a run. Lengths are read inline, and unused fields are not decoded: a record that
stays is copied as bytes. Every few records `breathe` yields the interpreter to the loop.

The CRC of the batches is checked before. A batch that still does not parse raises InvalidRecord.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.core.errors import InvalidRecord
from barnabas.records.varint import read_varint, read_varlong
from barnabas.storage.cleaner.offset_map import OffsetMap

RECORDS_PER_BREATH = 32

RecordPosition = tuple[int, int, int, int, int]
"""Positions of a record in the payload: its end, its timestamp, its offset delta, start and end of its key.
A record without a key has an end of the key before its start."""


class Kept(NamedTuple):
    """Records of a batch that stay."""

    runs: list[tuple[int, int]]
    """Ranges of the payload, each of whole records."""
    record_count: int
    max_timestamp_delta: int
    has_tombstone: bool
    """A tombstone within the map stays, so every earlier record of its key is removed."""
    without_key: int
    """Records without a key, which compaction drops."""


def map_keys(
    payload: bytes,
    record_count: int,
    base_offset: int,
    first_offset: int,
    offsets: OffsetMap,
    breathe: Callable[[], None],
) -> bool:
    """Put the key of every record from `first_offset` on; False if the map is full before the end."""
    put = offsets.put
    for _, _, delta, key_at, key_end in _walk(payload, record_count, breathe):
        if key_end >= key_at and base_offset + delta >= first_offset:
            if offsets.size >= offsets.size_max or base_offset + delta > offsets.offset_max:
                return False
            put(payload[key_at:key_end], base_offset + delta)
    return True


def keep_latest(
    payload: bytes,
    record_count: int,
    base_offset: int,
    offsets: OffsetMap,
    breathe: Callable[[], None],
    *,
    drop_tombstones: bool,
) -> Kept:
    """Find the records that are the last of their key, or above the end of the map."""
    get, latest_offset = offsets.get, offsets.latest_offset
    runs: list[tuple[int, int]] = []
    run_start = run_end = start = 0
    kept = without_key = 0
    timestamps: list[int] = []
    has_tombstone = False
    end = 0
    for end, timestamp_at, delta, key_at, key_end in _walk(payload, record_count, breathe):
        at, start = start, end
        offset = base_offset + delta
        is_mapped = offset <= latest_offset
        if key_end < key_at:
            if is_mapped:
                without_key += 1
                continue
        else:
            # A null value has the length -1, whose varint is 1.
            is_tombstone = payload[key_end] == 1
            if is_mapped and ((is_tombstone and drop_tombstones) or get(payload[key_at:key_end]) > offset):
                continue
            has_tombstone = has_tombstone or (is_tombstone and is_mapped)
        timestamps.append(timestamp_at)
        kept += 1
        if at != run_end:
            if run_end > run_start:
                runs.append((run_start, run_end))
            run_start = at
        run_end = end
    if end != len(payload):
        raise InvalidRecord("A batch holds more bytes than its records")
    if run_end > run_start:
        runs.append((run_start, run_end))
    # Only a batch that loses some of its records, and not all, gets a new largest timestamp.
    max_delta = max(read_varlong(payload, at)[0] for at in timestamps) if 0 < kept < record_count else 0
    return Kept(runs, kept, max_delta, has_tombstone, without_key)


def _walk(payload: bytes, record_count: int, breathe: Callable[[], None]) -> Iterator[RecordPosition]:
    position = 0
    size_bytes = len(payload)
    try:
        for index in range(record_count):
            if not index % RECORDS_PER_BREATH:
                breathe()
            byte = payload[position]
            if byte < 0x80:
                length, at = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, at = read_varint(payload, position)
            position = at + length
            if length < 0 or position > size_bytes:
                raise InvalidRecord("A record is longer than what is left of its batch")
            timestamp_at = at = at + 1
            while payload[at] >= 0x80:
                at += 1
            byte = payload[at + 1]
            if byte < 0x80:
                delta, at = byte >> 1, at + 2
            else:
                delta, at = read_varint(payload, at + 1)
            byte = payload[at]
            if byte < 0x80:
                length, at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                length, at = read_varint(payload, at)
            if at + length >= position:
                raise InvalidRecord("A key runs past the end of its record")
            yield position, timestamp_at, delta, at, at + length
    except IndexError:
        raise InvalidRecord("A record's fields run past the end of its batch") from None
