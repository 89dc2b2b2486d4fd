"""The log of one partition.

An append is all or nothing: checked first, written in one system call, recorded last. When
the write fails, the directory goes offline and nothing here has changed. Offsets are never
used twice.

What a leader has written is taken, however large: `segment.bytes` may be smaller today than when it was
written. A follower's piece is divided between batches, and a batch that is larger than a segment may be
gets one of its own.
"""

from __future__ import annotations

import logging

from barnabas.core.errors import KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from barnabas.core.ids import NO_OFFSET
from barnabas.records.batch import RecordBatch
from barnabas.records.validation import ValidatedRecords, assign_offsets, validate_produce
from barnabas.storage.log.append import AppendInfo, divided, replicated_batches, trusted_records
from barnabas.storage.log.log_reading import FetchData, ReadableLog
from barnabas.storage.names import LOG
from barnabas.storage.producers.producer_state import AppendOrigin, BatchMetadata, CompletedTransaction
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.transaction_index import record_aborted

__all__ = ["AppendInfo", "AppendOrigin", "FetchData", "Log"]

_log = logging.getLogger(__name__)


class Log(ReadableLog):
    def append_as_leader(
        self,
        records: bytearray | memoryview,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        zstd_allowed: bool = True,
        validated: ValidatedRecords | None = None,
    ) -> AppendInfo:
        """Give the records their offsets and write them.

        Offsets and epoch are patched into `records` in place. `validated` spares a second
        validation to those who have done it."""
        now_ms = self._clock.now_ms()
        if validated is None:
            if origin is AppendOrigin.CLIENT:
                validated = validate_produce(
                    records, settings=self._validation, now_ms=now_ms, zstd_allowed=zstd_allowed
                )
            else:
                validated = trusted_records(records, self._validation, now_ms)
        batches = validated.batches
        duplicate = self.producers.check(batches, origin)
        if duplicate is not None:
            return self._duplicate(duplicate)
        if len(validated.buffer) > self._segment_bytes:
            raise RecordListTooLarge(
                f"{len(validated.buffer)} bytes of records do not fit into a segment of {self._segment_bytes}"
            )
        base_offset = self.log_end_offset
        assign_offsets(validated, base_offset, leader_epoch)
        self._write(
            batches, validated.buffer, validated.max_timestamp, validated.offset_of_max_timestamp, now_ms
        )
        return AppendInfo(
            base_offset,
            self.log_end_offset - 1,
            self.log_start_offset,
            validated.log_append_time,
            validated.record_count,
            len(validated.buffer),
        )

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> AppendInfo:
        """Write what the leader wrote: its offsets, its epochs. A partial batch at the end is left out."""
        batches = replicated_batches(records)
        if not batches:
            return AppendInfo(NO_OFFSET, NO_OFFSET, self.log_start_offset)
        first, last = batches[0], batches[-1]
        if first.base_offset < self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: the leader's batch at {first.base_offset} lies before the log end "
                f"offset {self.log_end_offset}"
            )
        size_bytes = last.position + last.size_bytes
        view, now_ms = memoryview(records), self._clock.now_ms()
        for piece in divided(batches, self._segment_bytes):
            newest = max(piece, key=lambda batch: batch.max_timestamp)
            data = view[piece[0].position : piece[-1].position + piece[-1].size_bytes]
            self._write(piece, data, newest.max_timestamp, newest.last_offset, now_ms)
        return AppendInfo(
            first.base_offset,
            last.last_offset,
            self.log_start_offset,
            record_count=sum(batch.record_count for batch in batches),
            size_bytes=size_bytes,
        )

    def _write(
        self,
        batches: list[RecordBatch],
        data: bytes | bytearray | memoryview,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        now_ms: int,
    ) -> None:
        if self.is_closed or self.log_directory.failure is not None:
            raise KafkaStorageError(f"the log of {self.topic_partition} is offline")
        if self.unsynced_cut is not None:
            self.sync_cut()
        last = batches[-1]
        next_offset = last.base_offset + last.last_offset_delta + 1
        segment = self.segments.active
        if segment.should_roll(
            len(data),
            max_timestamp,
            next_offset - 1,
            now_ms,
            self._segment_bytes,
            self._roll_after_ms,
            self._segment_index_bytes,
        ):
            segment = self.roll(batches[0].base_offset)
        if last.is_control or len(batches) > 1:
            with self._guarded("reading the transaction index"):
                segment.transaction_index.load()
        try:
            segment.append(data, batches, max_timestamp, offset_of_max_timestamp, self._index_interval_bytes)
        except OSError as error:
            self._cut_after_failure(segment)
            self.fail(error)
            raise KafkaStorageError(f"appending to {self.topic_partition}: {error}") from error
        previous_end_offset = self.log_end_offset
        self._note_written(segment, batches)
        if next_offset - self.recovery_point >= self._flush_messages:
            if not self.is_flush_due:
                self.is_flush_due = True
                self._acknowledgeable = previous_end_offset
            self._flush_soon()

    def _note_written(self, segment: Segment, batches: list[RecordBatch]) -> None:
        """The batches are in the file: whatever else is known of the log must say so from here on."""
        self.log_end_offset = batches[-1].last_offset + 1
        epochs = self.leader_epochs
        for batch in batches:
            if batch.leader_epoch != epochs.latest_epoch and batch.leader_epoch >= 0:
                epochs.assign(batch.leader_epoch, batch.base_offset)
            completed = self.producers.apply(batch, batch.base_offset)
            if completed is not None:
                self._complete_transaction(segment, completed)

    def _duplicate(self, duplicate: BatchMetadata) -> AppendInfo:
        return AppendInfo(
            duplicate.first_offset,
            duplicate.last_offset,
            self.log_start_offset,
            log_append_time_ms=duplicate.timestamp,
            is_duplicate=True,
        )

    def _complete_transaction(self, segment: Segment, completed: CompletedTransaction) -> None:
        with self._guarded("writing the transaction index"):
            record_aborted(segment, self.producers, completed)
        self.producers.complete(completed)

    def _cut_after_failure(self, segment: Segment) -> None:
        """Take away what a failed write has left, if the disk still allows it."""
        try:
            segment.file.truncate(segment.size_bytes)
        except OSError as error:
            _log.warning("%s cannot be cut back: %s", segment.path(LOG), error)
