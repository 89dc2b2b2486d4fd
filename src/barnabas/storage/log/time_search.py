"""Search of an offset by timestamp (ListOffsets).

The time index leads close to the batch. The header of the batch shows whether it can hold the record. Only
then are its records decoded.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.core.bounds.budget import Budget
from barnabas.core.steps import Sliced
from barnabas.records.batch import MAGIC, NO_LEADER_EPOCH, RecordBatch
from barnabas.records.steps import iterate_in_steps
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.segments import Segments
from barnabas.storage.segment.batch_scan import Header
from barnabas.storage.segment.segment import Segment

HEADERS_PER_STEP: Final = 500
SEGMENTS_PER_STEP: Final = 50
"""Each may have to be opened."""


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


Search = Sliced[TimestampAndOffset | None]
"""A search that yields every few milliseconds. The log may change meanwhile, so each step starts from its
current segments. A batch is read as a whole before its records are decoded."""


def search_by_time(log: Log, timestamp: int, budget: Budget) -> Search:
    """Find the first record with this timestamp or a later one.

    Decoded records spend `budget`: the header of a malicious batch may name a timestamp that none of its
    millions of records has."""
    from_offset = log.log_start_offset
    while True:
        with log.guarded_read("searching by time"):
            found = _next_candidate(log.segments, timestamp, from_offset)
        if isinstance(found, TimestampAndOffset) or found is None:
            return found
        if isinstance(found, RecordBatch):
            record = yield from _first_record(found, timestamp, from_offset, budget)
            if record is not None:
                return record
            from_offset = found.last_offset + 1
        else:
            from_offset = found
        yield


def search_max_timestamp(log: Log, budget: Budget) -> Search:
    """Find the first record with the largest timestamp; None in a log without timestamps."""
    newest = yield from _newest_by_time(log)
    with log.guarded_read("searching by time"):
        timestamp = newest.max_timestamp
        if timestamp < 0:
            return None
        header = newest.find(newest.offset_of_max_timestamp)
        if header is None:
            return None
        batch = _batch_of(newest, header)
    if isinstance(batch, TimestampAndOffset):
        return batch
    return (yield from _first_record(batch, timestamp, 0, budget))


def _newest_by_time(log: Log) -> Sliced[Segment]:
    """First segment with the largest timestamp. Retention may delete segments at each pause."""
    while True:
        newest, segment = log.segments.first, log.segments.following(log.segments.first)
        with log.guarded_read("searching by time"):
            timestamp = newest.max_timestamp
        while segment is not None:
            with log.guarded_read("searching by time"):
                if segment.max_timestamp > timestamp:
                    newest, timestamp = segment, segment.max_timestamp
            yield
            segment = log.segments.following(segment)
        if log.segments.floor(newest.base_offset) is newest:
            return newest


def timestamp_of(log: Log, offset: int) -> int | None:
    """Largest timestamp of the batch that holds `offset`, or of the next one; None at the end of the log."""
    with log.guarded_read("searching by offset"):
        segments = log.segments
        segment: Segment | None = segments.floor(offset) or next(iter(segments), None)
        while segment is not None:
            header = segment.find(offset)
            if header is not None:
                return header.max_timestamp
            segment = segments.following(segment)
    return None


def _next_candidate(
    segments: Segments, timestamp: int, from_offset: int
) -> RecordBatch | TimestampAndOffset | int | None:
    """Next batch that may hold the record, or the record itself in an old format.

    An offset means that many headers or segments were read, and the search continues there. None means that
    there is no such record."""
    looked_at = 0
    for number, segment in enumerate(segments.since(from_offset)):
        if number == SEGMENTS_PER_STEP:
            return segment.base_offset
        if segment.max_timestamp < timestamp:
            continue
        for header in segment.headers(segment.position_before_time(timestamp, from_offset)):
            if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
                return _batch_of(segment, header)
            looked_at += 1
            if looked_at >= HEADERS_PER_STEP and header.last_offset >= from_offset:
                return header.last_offset + 1
    return None


def _batch_of(segment: Segment, header: Header) -> RecordBatch | TimestampAndOffset:
    if header.magic != MAGIC:
        return TimestampAndOffset(header.max_timestamp, header.last_offset, NO_LEADER_EPOCH)
    return RecordBatch(segment.file.read_at(header.position, header.size_bytes))


def _first_record(batch: RecordBatch, timestamp: int, start_offset: int, budget: Budget) -> Search:
    counted = 0
    for record in iterate_in_steps(batch, first_offset=start_offset, with_bodies=False, budget=budget):
        if record is None:
            budget.spend_records(counted)
            counted = 0
            yield
        elif record.timestamp >= timestamp:
            return TimestampAndOffset(record.timestamp, record.offset, batch.leader_epoch)
        else:
            counted += 1
    return None
