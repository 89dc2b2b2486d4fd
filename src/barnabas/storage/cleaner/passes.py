"""The two passes over one segment, as a thread makes them: in slices, and on nothing but what
it was given.

A pass keeps its place between two slices. It owns the map or the segment being written while a
slice runs, and the loop does not look at them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.core.errors import CorruptMessage
from barnabas.core.files import DataFile
from barnabas.records.batch import RecordBatch
from barnabas.records.legacy import LegacyMessage, iterate_message_records
from barnabas.records.record import inflate_payload
from barnabas.storage.cleaner.batch_filter import BatchFilter
from barnabas.storage.cleaner.offset_map import OffsetMap
from barnabas.storage.cleaner.pacing import Pace
from barnabas.storage.cleaner.record_scan import map_keys
from barnabas.storage.cleaner.transactions import CleanedTransactions
from barnabas.storage.cleaner.writer import SegmentWriter
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
    """The part of a closed segment that a thread may read."""

    file: DataFile
    position: int
    end: int
    first_offset: int
    end_offset: int
    """That of the segment behind this one."""
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
            raise CorruptMessage(f"the segment of {self.first_offset} has no valid batch at position {at}")


class Mapping:
    """Reads one segment into the offset map, slice by slice."""

    def __init__(
        self,
        stats: CleanerStats,
        pace: Pace,
        source: Source,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        first_offset: int,
    ) -> None:
        self.is_done = False
        self.is_full = False
        self._batches = source.batches()
        self._stats = stats
        self._pace = pace
        self._offsets = offsets
        self._transactions = transactions
        self._first_offset = first_offset

    def advance(self) -> None:
        pace, stats, offsets = self._pace, self._stats, self._offsets
        pace.begin_slice()
        for batch in self._batches:
            stats.read_bytes += batch.size_bytes
            if not self._put(batch):
                self.is_done = self.is_full = True
                return
            offsets.latest_offset = max(offsets.latest_offset, batch.last_offset)
            if pace.is_slice_over:
                return
        self.is_done = True

    def _put(self, batch: RecordBatch | LegacyMessage) -> bool:
        offsets, breathe = self._offsets, self._pace.breathe
        if isinstance(batch, LegacyMessage):
            breathe()
            for record in iterate_message_records(batch):
                if offsets.size >= offsets.size_max:
                    return False
                if record.key is not None and record.offset >= self._first_offset:
                    offsets.put(record.key, record.offset)
            return True
        if self._transactions.is_disposable(batch) or batch.is_control or not batch.record_count:
            breathe()
            return True
        payload = bytes(inflate_payload(batch))
        return map_keys(payload, batch.record_count, batch.base_offset, self._first_offset, offsets, breathe)


class Rewriting:
    """Copies what is to stay of one segment, slice by slice."""

    def __init__(
        self,
        stats: CleanerStats,
        pace: Pace,
        source: Source,
        writer: SegmentWriter,
        batch_filter: BatchFilter,
        transactions: CleanedTransactions,
    ) -> None:
        self.is_done = False
        self._batches = source.batches()
        self._stats = stats
        self._pace = pace
        self._writer = writer
        self._filter = batch_filter
        self._transactions = transactions

    def advance(self) -> None:
        pace, stats, batch_filter, writer = self._pace, self._stats, self._filter, self._writer
        retained = self._transactions.retained
        pace.begin_slice()
        for batch in self._batches:
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
                return
        self.is_done = True
