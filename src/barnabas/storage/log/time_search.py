"""From a time to an offset.

The time index leads close to the batch, the header of the batch says whether it can hold the
record, and only then are its records looked at.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.records.batch import NO_LEADER_EPOCH, RecordBatch
from barnabas.records.record import iterate_records
from barnabas.storage.log.log import Log
from barnabas.storage.log.segments import Segments
from barnabas.storage.segment.batch_scan import Header
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.sparse_index import CorruptIndex


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampAndOffset | None:
    """The first record whose time is `timestamp` or later."""
    with log.guarded("searching by time"):
        return _search(log.segments, timestamp, log.log_start_offset)


def max_timestamp_offset(log: Log) -> TimestampAndOffset | None:
    """The first record with the largest time of all; None in a log without times."""
    with log.guarded("searching by time"):
        newest = max(log.segments, key=lambda segment: segment.max_timestamp)
        if newest.max_timestamp < 0:
            return None
        header = newest.find(newest.offset_of_max_timestamp)
        return None if header is None else _first_record(newest, header, newest.max_timestamp, 0)


def _search(segments: Segments, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        position = _position_before(segment, timestamp, start_offset)
        for header in segment.headers(position):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                found = _first_record(segment, header, timestamp, start_offset)
                if found is not None:
                    return found
    return None


def _position_before(segment: Segment, timestamp: int, start_offset: int) -> int:
    try:
        offset = segment.time_index.offset_before(timestamp)
        return segment.offset_index.position_before(max(offset, start_offset))
    except CorruptIndex as error:
        segment.rebuild_indexes(str(error))
        return 0


def _first_record(
    segment: Segment, header: Header, timestamp: int, start_offset: int
) -> TimestampAndOffset | None:
    if header.magic != 2:
        return TimestampAndOffset(header.max_timestamp, header.last_offset, NO_LEADER_EPOCH)
    batch = RecordBatch(segment.file.read_at(header.position, header.size_bytes))
    for record in iterate_records(batch):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return TimestampAndOffset(record.timestamp, record.offset, batch.leader_epoch)
    return None
