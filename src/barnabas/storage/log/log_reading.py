"""The layer that reads: a fetch is a region of one segment file, found without looking at
records, at a cost that does not depend on how long the log is."""

from __future__ import annotations

from barnabas.core.errors import KafkaStorageError, OffsetOutOfRange
from barnabas.core.ids import NO_OFFSET
from barnabas.core.regions import FileRegion
from barnabas.storage.log import time_search
from barnabas.storage.log.log_segments import SegmentedLog
from barnabas.storage.log.time_search import TimestampAndOffset
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.transaction_index import AbortedTransaction


class FetchData:
    """A piece of one segment, from the batch that holds `fetch_offset` on."""

    __slots__ = ("fetch_offset", "is_first_batch_incomplete", "records", "segment_base_offset", "size_bytes")

    def __init__(
        self,
        fetch_offset: int,
        records: FileRegion | bytes,
        *,
        segment_base_offset: int = NO_OFFSET,
        is_first_batch_incomplete: bool = False,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.records = records
        self.size_bytes = len(records)
        self.segment_base_offset = segment_base_offset
        self.is_first_batch_incomplete = is_first_batch_incomplete
        """The first batch is larger than what was asked for, and so is useless to the reader."""


class ReadableLog(SegmentedLog):
    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True
    ) -> FetchData:
        """The batches from the one that holds `offset` on, below `upper_offset`, of one segment."""
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is not within "
                f"[{self.log_start_offset}, {log_end_offset}]"
            )
        if offset >= upper_offset or offset == log_end_offset:
            return FetchData(offset, b"")
        if self.is_closed or self.log_directory.failure is not None:
            raise KafkaStorageError(f"the log of {self.topic_partition} is offline")
        segment: Segment | None = self.segments.active
        if offset < self.segments.active.base_offset:
            segment = self.segments.floor(offset)
        try:
            located = None
            while segment is not None and (located := segment.locate(offset)) is None:
                segment = self.segments.following(segment)
            if segment is None or located is None:
                return FetchData(offset, b"")
            position, batch_bytes = located
            available_bytes = self._end_position(segment, upper_offset) - position
            file = segment.file
        except OSError as error:
            self.fail(error)
            raise KafkaStorageError(f"reading {self.topic_partition}: {error}") from error
        if min_one_batch and max_bytes < batch_bytes:
            max_bytes = batch_bytes
        length = min(available_bytes, max_bytes)
        if length <= 0:
            return FetchData(offset, b"", is_first_batch_incomplete=max_bytes < batch_bytes)
        return FetchData(
            offset,
            FileRegion(file, position, length),
            segment_base_offset=segment.base_offset,
            is_first_batch_incomplete=max_bytes < batch_bytes,
        )

    def _end_position(self, segment: Segment, upper_offset: int) -> int:
        """Where in the segment the batches below `upper_offset` end."""
        if upper_offset >= self.log_end_offset:
            return segment.size_bytes
        if segment is not self.segments.active:
            following = self.segments.following(segment)
            if following is not None and following.base_offset <= upper_offset:
                return segment.size_bytes
        located = segment.locate(upper_offset)
        return segment.size_bytes if located is None else located[0]

    def upper_bound_offset(self, data: FetchData) -> int:
        """An offset that nothing in `data` reaches: where the search for aborted transactions may end."""
        if isinstance(data.records, bytes):
            return data.fetch_offset + 1
        segment = self.segments.floor(data.segment_base_offset)
        if segment is None:
            return self.log_end_offset
        end_position = data.records.position + data.records.length
        with self._guarded("searching the index"):
            try:
                found = segment.offset_index.offset_after(end_position)
            except CorruptIndex as error:
                segment.rebuild_indexes(str(error))
                found = segment.offset_index.offset_after(end_position)
        if found is not None:
            return found
        following = self.segments.following(segment)
        return self.log_end_offset if following is None else following.base_offset

    def aborted_transactions(self, fetch_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap `[fetch_offset, upper_offset)`."""
        found: list[AbortedTransaction] = []
        with self._guarded("reading the transaction index"):
            for segment in self.segments.since(fetch_offset):
                if segment.transaction_index.collect(fetch_offset, upper_offset, found):
                    break
        return found

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record whose time is `timestamp` or later."""
        with self._guarded("searching by time"):
            return time_search.offset_for_timestamp(self.segments, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """The record with the largest time; None in a log without times."""
        with self._guarded("searching by time"):
            return time_search.offset_of_max_timestamp(self.segments)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """`(epoch, end offset)` of the largest epoch up to `epoch`; both -1 when unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)
