"""Passes of compaction over one segment, in a thread: `map_segment` and `rewrite_segment`.

A pass is a generator that yields at the end of each slice. During a slice it owns the map or the segment
being written, and the loop does not use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.core.errors import CorruptMessage
from barnabas.core.files import DataFile
from barnabas.core.steps import Sliced
from barnabas.records.batch import RecordBatch
from barnabas.records.legacy import LegacyMessage, iterate_message_records
from barnabas.records.record import inflate_payload
from barnabas.storage.cleaner.batch_filter import BatchFilter
from barnabas.storage.cleaner.offset_map import OffsetMap
from barnabas.storage.cleaner.record_scan import map_keys
from barnabas.storage.cleaner.transactions import CleanedTransactions
from barnabas.storage.cleaner.writer import SegmentWriter
from barnabas.storage.files.pacing import Pace
from barnabas.storage.log.log import Log
from barnabas.storage.segment.batch_scan import LegacyBatch, iterate_valid_batches
from barnabas.storage.segment.segment import Segment


@dataclass(slots=True)
class CleanerStats:
    read_bytes: int = 0
    written_bytes: int = 0
    read_records: int = 0
    without_key: int = 0
    map_utilization: float = 0.0


@dataclass(slots=True)
class Source:
    """Part of a closed segment that a thread may read."""

    file: DataFile
    position: int
    end: int
    first_offset: int
    end_offset: int
    """Base offset of the next segment."""
    chunk_bytes: int

    @classmethod
    def of(cls, log: Log, segment: Segment, chunk_bytes: int, position: int = 0) -> Source:
        following = log.segments.following(segment)
        assert following is not None
        return cls(
            segment.file,
            position,
            segment.size_bytes,
            segment.base_offset,
            following.base_offset,
            chunk_bytes,
        )

    def batches(self) -> Iterator[RecordBatch | LegacyMessage]:
        """Every batch; CorruptMessage when one is damaged, or is not where its offsets belong."""
        at, next_offset = self.position, self.first_offset
        for position, batch in iterate_valid_batches(
            self.file, self.end, self.position, chunk_bytes=self.chunk_bytes
        ):
            if not next_offset <= batch.base_offset <= batch.last_offset < self.end_offset:
                break
            at, next_offset = position + batch.size_bytes, batch.last_offset + 1
            if isinstance(batch, LegacyBatch):
                yield LegacyMessage(self.file.read_at(position, batch.size_bytes))
            else:
                yield batch
        if at != self.end:
            raise CorruptMessage(
                f"the segment at offset {self.first_offset} has no valid batch at position {at}"
            )


def map_segment(
    source: Source,
    offsets: OffsetMap,
    transactions: CleanedTransactions,
    first_offset: int,
    stats: CleanerStats,
    pace: Pace,
) -> Sliced[bool]:
    """Read one segment into the offset map; False if the map is full before the end."""
    pace.begin_slice()
    for batch in source.batches():
        stats.read_bytes += batch.size_bytes
        if isinstance(batch, LegacyMessage):
            has_room = _map_message(batch, first_offset, offsets, pace)
        elif transactions.is_disposable(batch) or batch.is_control or not batch.record_count:
            pace.breathe()
            has_room = True
        else:
            payload, count = bytes(inflate_payload(batch)), batch.record_count
            has_room = map_keys(payload, count, batch.base_offset, first_offset, offsets, pace.breathe)
        if not has_room:
            return False
        offsets.latest_offset = max(offsets.latest_offset, batch.last_offset)
        if pace.is_slice_over:
            yield
            pace.begin_slice()
    return True


def _map_message(message: LegacyMessage, first_offset: int, offsets: OffsetMap, pace: Pace) -> bool:
    pace.breathe()
    for record in iterate_message_records(message):
        if offsets.size >= offsets.size_max or record.offset > offsets.offset_max:
            return False
        if record.key is not None and record.offset >= first_offset:
            offsets.put(record.key, record.offset)
    return True


def rewrite_segment(
    source: Source,
    writer: SegmentWriter,
    batch_filter: BatchFilter,
    transactions: CleanedTransactions,
    stats: CleanerStats,
    pace: Pace,
) -> Sliced[bool]:
    """Write the remaining batches of one segment to the new one."""
    retained = transactions.retained
    pace.begin_slice()
    for batch in source.batches():
        stats.read_bytes += batch.size_bytes
        if isinstance(batch, RecordBatch):
            stats.read_records += batch.record_count
            remainder = batch_filter.remainder(batch)
        else:
            remainder = batch_filter.message_remainder(batch)
        if remainder is not None:
            stats.written_bytes += len(remainder)
            written = RecordBatch(remainder) if isinstance(remainder, bytearray) else batch
            writer.append(remainder, written.last_offset, written.max_timestamp)
        if retained:
            writer.abort_recorded(retained)
            retained.clear()
        if pace.is_slice_over:
            yield
            pace.begin_slice()
    return True
