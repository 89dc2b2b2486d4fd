"""The log of one partition, built from its parts.

- `segments`: the files of batches, with their indexes;
- `watermarks`: log start offset, high watermark, log end offset;
- `flush_state`: the part of the log that is on disk;
- `producers`: the state of idempotent and transactional producers;
- `leader_epochs`: the first offset of each leader epoch.

Each part keeps its own state. This module fixes the order in which they change. Rare operations are functions
over a log: `retention`, `producer_expiry`, `truncation`, `time_search`.

An append is all or nothing: the batches are checked, written in one system call, then recorded. When the
write fails, the directory goes offline and no part has changed. Offsets are never used twice. A thread writes
a large append (`threaded_append`), in the same three steps.

A follower accepts every batch of its leader, however large: `segment.bytes` may be smaller now than when the
leader wrote it. Fetched records are divided between batches, and a batch that exceeds the limit of a segment
gets one of its own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.config.log_config import LogConfig
from barnabas.core.errors import (
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnknownServerError,
)
from barnabas.core.ids import NO_OFFSET, TopicPartition, Uuid
from barnabas.core.reporting.error_isolation import complain
from barnabas.records.batch import RecordBatch
from barnabas.records.validation import (
    ValidatedRecords,
    assign_offsets,
    is_long_validation,
    validate_produce,
)
from barnabas.storage.files.delayed_delete import unlink_later
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.files.failures import Reach, reach_of
from barnabas.storage.files.log_path import LogPath
from barnabas.storage.files.names import PARTITION_METADATA
from barnabas.storage.log import reading
from barnabas.storage.log.parts.append import (
    AppendInfo,
    Records,
    ThreadedWrite,
    divided,
    replicated_batches,
    trusted_records,
)
from barnabas.storage.log.parts.flush_state import CutWork, FlushState, FlushWork
from barnabas.storage.log.parts.leader_epoch_cache import LeaderEpochCache
from barnabas.storage.log.parts.partition_metadata import render_topic_id
from barnabas.storage.log.parts.segments import Segments, new_segment
from barnabas.storage.log.parts.watermarks import Watermarks
from barnabas.storage.log.producer_recovery import record_aborted, snapshot_producers
from barnabas.storage.log.reading import FetchData
from barnabas.storage.producers.append_checks import AppendOrigin
from barnabas.storage.producers.producer_entry import ProducerEntry
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

_LONG_VALIDATION = threading.Lock()
"""Threads validate one such batch at a time: each takes up to 50 MB, and one request may have several."""


class Log:
    """Opened by `log_loader.open_log`; owned by the loop."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        log_directory: LogDirectory,
        log_path: LogPath,
        config: LogConfig,
        environment: Environment,
        *,
        segments: Segments,
        watermarks: Watermarks,
        flush_state: FlushState,
        producers: ProducerState,
        leader_epochs: LeaderEpochCache,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log_directory = log_directory
        self.config = config
        self.segments = segments
        self.watermarks = watermarks
        self.flush_state = flush_state
        self.producers = producers
        self.leader_epochs = leader_epochs
        self.is_closed = False
        self._log_path = log_path
        self.environment = environment
        self._clock = environment.clock
        self._validation = config.validation_settings()
        self._roll_after_ms = config.roll_after_ms
        self._request_flush: Callable[[Log], None] | None = None
        self.on_unreadable: Callable[[Log, OSError], None] | None = None
        """Callback after a failed read. Without it a failed read takes the directory offline."""
        self.writing: ThreadedWrite | None = None
        """Large append that a thread writes. No part of the log includes it yet."""
        self.waiting: deque[Callable[[], None]] = deque()
        """Appends queued behind the write in progress."""
        self.is_queue_running = False
        """Whether a caller further up the stack runs the queued appends."""

    @property
    def directory(self) -> str:
        return self._log_path.directory

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._validation = config.validation_settings()
        self._roll_after_ms = config.roll_after_ms
        self.segments.update_index_interval(config.indexed_every_bytes)
        if not self.is_closed and self.unflushed_messages >= config.flush_messages:
            self.flush_state.became_due(self.high_watermark)
            self._flush_soon()

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Store the topic id, in `partition.metadata` too; a different one is refused."""
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            raise InconsistentTopicId(f"{self.topic_partition} has topic id {self.topic_id}, not {topic_id}")
        path = f"{self.directory}/{PARTITION_METADATA}"
        with self.guarded("writing the topic id"):
            self.environment.files.write(path, render_topic_id(topic_id))
        self.flush_state.wrote(path)
        self.topic_id = topic_id

    # --- append as leader ---

    def append_as_leader(
        self,
        records: Records,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Assign offsets to the records and write them. Offsets and epoch are patched into `records`."""
        if self.writing is not None:
            self.settle()
        now_ms = self._clock.now_ms()
        accepted = self.accept(records, leader_epoch, origin, now_ms)
        if isinstance(accepted, AppendInfo):
            return accepted
        base_offset = self.watermarks.log_end_offset
        self._write(
            accepted.batches,
            accepted.buffer,
            accepted.max_timestamp,
            accepted.offset_of_max_timestamp,
            now_ms,
        )
        return self._append_info(accepted, base_offset)

    def accept(
        self, records: Records, leader_epoch: int, origin: AppendOrigin, now_ms: int
    ) -> ValidatedRecords | AppendInfo:
        """Validate the records and assign their offsets; AppendInfo if they repeat an earlier append."""
        if isinstance(records, ValidatedRecords):
            validated = records
        elif origin is AppendOrigin.CLIENT:
            validated = validate_produce(records, settings=self._validation, now_ms=now_ms)
        else:
            validated = trusted_records(records, self._validation, now_ms)
        duplicate = self.producers.check(validated.batches, origin)
        if duplicate is not None:
            return AppendInfo.of_duplicate(duplicate, self.watermarks.log_start_offset)
        size_bytes = len(validated.buffer)
        if size_bytes > self.config.segment_bytes:
            raise RecordListTooLarge(
                f"{self.topic_partition}: {size_bytes} bytes of records do not fit into a segment of"
                f" {self.config.segment_bytes} bytes"
            )
        assign_offsets(validated, self.watermarks.log_end_offset, leader_epoch)
        return validated

    def _append_info(self, appended: ValidatedRecords, base_offset: int) -> AppendInfo:
        watermarks = self.watermarks
        return AppendInfo(
            base_offset,
            watermarks.log_end_offset - 1,
            watermarks.log_start_offset,
            appended.log_append_time,
            appended.record_count,
            len(appended.buffer),
        )

    def validation(self, records: memoryview) -> Callable[[], ValidatedRecords] | None:
        """Validation of a producer's records for a thread, if it may take long; None if not."""
        settings = self._validation
        if not is_long_validation(records, settings):
            return None
        now_ms = self._clock.now_ms()

        def validate() -> ValidatedRecords:
            with _LONG_VALIDATION:
                return validate_produce(records, settings=settings, now_ms=now_ms)

        return validate

    # --- appends that a thread writes (`threaded_append`) ---

    @property
    def is_being_written(self) -> bool:
        """Whether an append must queue behind one that a thread writes."""
        return self.writing is not None or len(self.waiting) > 0

    def settle(self) -> None:
        """Finish the write in progress, on the loop if no thread has begun it.

        The caller then finds the log as if every append had been written at once. The producer gets its
        answer later."""
        writing = self.writing
        if writing is None:
            return
        writing.perform()
        self.writing = None
        try:
            writing.outcome = self._record_write(writing)
        except KafkaError as error:
            writing.outcome = error
        except Exception as error:  # noqa: BLE001 - the producer must get an answer in any case
            complain("recording an append", self.topic_partition, error)
            writing.outcome = UnknownServerError("unexpected error; the broker's log has the details")

    def _record_write(self, writing: ThreadedWrite) -> AppendInfo:
        segment, validated = writing.segment, writing.validated
        if self.is_closed or self.log_directory.failure is not None:
            raise self._offline()
        try:
            if writing.error is not None:
                raise writing.error
            segment.appended(
                len(validated.buffer),
                validated.batches,
                validated.max_timestamp,
                validated.offset_of_max_timestamp,
            )
        except OSError as error:  # of the write, or of an index
            segment.cut_after_failure()
            self.fail(error)
            raise KafkaStorageError(f"appending to {self.topic_partition}: {error}") from error
        self._appended(segment, validated.batches)
        return self._append_info(validated, writing.base_offset)

    # --- append as follower ---

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> AppendInfo:
        """Write batches of the leader with its offsets and epochs. A partial batch at the end is left out."""
        self.settle()
        batches, watermarks = replicated_batches(records), self.watermarks
        if not batches:
            return AppendInfo(NO_OFFSET, NO_OFFSET, watermarks.log_start_offset)
        first, last = batches[0], batches[-1]
        if first.base_offset < watermarks.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: the leader's batch at offset {first.base_offset} is below the log "
                f"end offset {watermarks.log_end_offset}"
            )
        view, now_ms = memoryview(records), self._clock.now_ms()
        for piece in divided(batches, self.config.segment_bytes):
            newest = max(piece, key=lambda batch: batch.max_timestamp)
            data = view[piece[0].position : piece[-1].position + piece[-1].size_bytes]
            self._write(piece, data, newest.max_timestamp, newest.last_offset, now_ms)
        return AppendInfo(
            first.base_offset,
            last.last_offset,
            watermarks.log_start_offset,
            record_count=sum(batch.record_count for batch in batches),
            size_bytes=last.position + last.size_bytes,
        )

    def _write(
        self,
        batches: list[RecordBatch],
        data: bytes | bytearray | memoryview,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        now_ms: int,
    ) -> None:
        segment = self.segment_for(batches, len(data), max_timestamp, now_ms)
        try:
            segment.append(data, batches, max_timestamp, offset_of_max_timestamp)
        except OSError as error:
            segment.cut_after_failure()
            self.fail(error)
            raise KafkaStorageError(f"appending to {self.topic_partition}: {error}") from error
        self._appended(segment, batches)

    def segment_for(
        self, batches: list[RecordBatch], size_bytes: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        """Segment for the batches: the active one, or a new one."""
        if self.is_closed or self.log_directory.failure is not None:
            raise self._offline()
        if self.flush_state.unsynced_cut is not None:
            self.sync_cut()
        last, config = batches[-1], self.config
        segment = self.segments.active
        try:
            is_complete = segment.should_roll(
                size_bytes,
                max_timestamp,
                last.base_offset + last.last_offset_delta,
                now_ms,
                config.segment_bytes,
                self._roll_after_ms,
                config.segment_index_bytes,
            )
        except OSError as error:  # the first append after a start reads the file
            self.fail(error)
            raise KafkaStorageError(f"appending to {self.topic_partition}: {error}") from error
        if is_complete:
            segment = self.roll(batches[0].base_offset)
        if last.is_control or len(batches) > 1:
            with self.guarded_read("reading the transaction index"):
                segment.transaction_index.load()
        return segment

    def _appended(self, segment: Segment, batches: list[RecordBatch]) -> None:
        """Record batches that are in the file in every part of the log."""
        last = batches[-1]
        next_offset = last.base_offset + last.last_offset_delta + 1
        previous_end_offset = self.watermarks.log_end_offset
        self.watermarks.appended(next_offset)
        epochs, producers = self.leader_epochs, self.producers
        for batch in batches:
            if batch.leader_epoch != epochs.latest_epoch and batch.leader_epoch >= 0:
                epochs.assign(batch.leader_epoch, batch.base_offset)
            completed = producers.apply(batch, batch.base_offset)
            if completed is not None:
                with self.guarded("writing the transaction index"):
                    record_aborted(segment, producers, completed)
                producers.complete(completed)
        if next_offset - self.flush_state.recovery_point >= self.config.flush_messages:
            self.flush_state.became_due(previous_end_offset)
            self._flush_soon()

    # --- read ---

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True
    ) -> FetchData:
        """Read batches of one segment, from the one that holds `offset`, up to `upper_offset`."""
        watermarks = self.watermarks
        log_end_offset = watermarks.log_end_offset
        if not watermarks.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is not within "
                f"[{watermarks.log_start_offset}, {log_end_offset}]"
            )
        if offset >= upper_offset or offset == log_end_offset:
            return FetchData(offset, b"")
        if self.is_closed or self.log_directory.failure is not None:
            raise self._offline()
        try:
            return reading.read(self.segments, offset, max_bytes, upper_offset, log_end_offset, min_one_batch)
        except OSError as error:
            self.read_failed(error)
            raise KafkaStorageError(f"reading {self.topic_partition}: {error}") from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """`(epoch, end offset)` of the largest epoch up to `epoch`; both -1 when unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # --- watermarks ---

    @property
    def log_start_offset(self) -> int:
        return self.watermarks.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.watermarks.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.watermarks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offset below which every transaction has ended: consumers with `read_committed` read up to it."""
        first = self.producers.first_unstable_offset
        watermarks = self.watermarks
        return watermarks.high_watermark if first is None else watermarks.last_stable_offset(first)

    @property
    def durable_end_offset(self) -> int:
        """Offset up to which records may be acknowledged: while a flush is due, only those on disk."""
        return self.flush_state.durable_end_offset(self.watermarks.log_end_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark, on leaders and followers. True if it changed; it never falls here."""
        if not self.watermarks.advance_high_watermark(offset):
            return False
        self.producers.high_watermark_advanced(offset)
        return True

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark after a start, a move or a truncation; returns it, bounded by the log."""
        high_watermark = self.watermarks.update_high_watermark(offset)
        self.producers.high_watermark_advanced(high_watermark)
        return high_watermark

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Drop the records below `offset`. The next retention run deletes their segments."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: the log start offset cannot become {offset}, which is above "
                f"the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        logger.info(
            "partition %s: incremented log start offset to %d: %s", self.topic_partition, offset, reason
        )
        self.watermarks.advance_log_start(offset)
        self.leader_epochs.truncate_from_start(offset)
        self.producers.log_start_offset_advanced(offset)
        return True

    # --- producers ---

    def active_producers(self) -> list[ProducerEntry]:
        return list(self.producers.producers.values())

    def replace_producers(self, producers: ProducerState) -> None:
        """Set the producer state after a truncation."""
        self.producers = producers
        producers.high_watermark_advanced(self.high_watermark)

    def _snapshot_producers(self, offset: int) -> str:
        return snapshot_producers(self.environment, self._log_path, self.flush_state, self.producers, offset)

    # --- segments ---

    def roll(self, base_offset: int | None = None) -> Segment:
        """Close the active segment and start a new one; an empty one stays active."""
        self.settle()
        end_offset = self.watermarks.log_end_offset
        base_offset = end_offset if base_offset is None else max(base_offset, end_offset)
        active = self.segments.active
        if base_offset == active.base_offset:
            return active
        self.sync_cut()
        with self.guarded("rolling"):
            # The new segment is added last: no later step can fail.
            active.seal()
            snapshot = self._snapshot_producers(base_offset)
            segment = new_segment(self.environment, self.directory, base_offset, self.config).create()
            self.segments.add(segment)
            self.flush_state.names_changed([*active.derived_paths(), snapshot])
        self._flush_soon()
        return segment

    def delete_segments(self, gone: list[Segment]) -> None:
        """Remove segments from the log and rename their files at once; unlink the files later."""
        with self.guarded("deleting segments"):
            renamed = self.segments.delete(gone)
            self.flush_state.names_changed()
        self.unlink_later(renamed)

    def replace_segments(self, old: list[Segment], new: Segment) -> list[str]:
        """Replace segments by the compacted one made from them, which is complete and on disk.

        Returns the new names of the old files. `unlink_later` may get them after a sync of the directory."""
        with self.guarded("swapping in a compacted segment"):
            renamed = self.segments.replace(old, new)
            self.flush_state.names_changed()
        return renamed

    def unlink_later(self, paths: list[str]) -> None:
        unlink_later(self.environment, paths, self.fail, delay_ms=self.config.file_delete_delay_ms)

    # --- flushing ---

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.flush_state.recovery_point

    def flush_by(self, request: Callable[[Log], None]) -> None:
        """Call `request` when a flush is due or a segment was closed. Without it the log flushes itself.

        A log with an unsynced tail is due as soon as it is open (`FlushState`)."""
        self._request_flush = request
        if self.flush_state.is_due:
            request(self)

    def plan_flush(self) -> FlushWork | None:
        """Decide what to sync; None if everything is on disk."""
        return self.flush_state.plan(self.log_end_offset, self.segments, self.leader_epochs)

    def flush_completed(self, work: FlushWork | None) -> None:
        """Advance the recovery point after a flush, so that acknowledgements can go out."""
        if work is not None and work.epochs_content is not None:
            self.leader_epochs.written(work.epochs_version)
        self.flush_state.completed(
            work, self.log_end_offset, self.config.flush_messages, self._clock.now_ms()
        )

    def flush(self) -> None:
        """Sync the whole log before returning."""
        work = self.plan_flush()
        if work is not None:
            with self.guarded("flushing"):
                work()
        self.flush_completed(work)

    def _flush_soon(self) -> None:
        if self._request_flush is not None:
            self._request_flush(self)
        else:
            self.flush()

    def is_durable(self, path: str) -> bool:
        """Whether a derived file is on disk. If it is not, request a flush."""
        if self.flush_state.is_unsynced(path):
            self._flush_soon()
        return not self.flush_state.is_unsynced(path)

    def write_epochs_soon(self) -> None:
        """Update the epoch file in a thread, without a sync of records."""
        write = self.flush_state.plan_epochs(self.leader_epochs)
        self.environment.background.submit(write, self.leader_epochs.written, self.fail)

    def sync_cut(self) -> None:
        """Sync the last truncation before returning."""
        cut = self.flush_state.unsynced_cut
        if cut is not None:
            with self.guarded("truncating"):
                cut()
            self.flush_state.cut_synced(cut)

    def cut_synced(self, cut: CutWork | None, error: OSError | None = None) -> None:
        """Record the outcome of a truncation that a thread synced."""
        if error is not None:
            with self.guarded("truncating"):
                raise error
        self.flush_state.cut_synced(cut)

    # --- close ---

    def close(self) -> None:
        """Flush, complete the indexes and write the producer snapshot. The next start trusts all of it."""
        work = self.plan_close()
        if work is not None:
            with self.guarded("closing"):
                work()
            self.flush_completed(work)
        self.release()

    def plan_close(self) -> FlushWork | None:
        """Complete the log and decide what to sync; None if it is as the last clean shutdown left it."""
        self.settle()
        if self.is_closed or self.log_directory.failure is not None:
            return None
        end_offset = self.log_end_offset
        if self.flush_state.is_as_settled(end_offset) and self.plan_flush() is None:
            return None
        active = self.segments.active
        with self.guarded("closing"):
            active.close_for_now()
            snapshot = self._snapshot_producers(end_offset)
            self.flush_state.names_changed([*active.derived_paths(), snapshot])
        return self.plan_flush()

    def release(self) -> None:
        """Close the files without a write."""
        self.is_closed = True
        self.segments.release()

    def rename_to(self, directory: str) -> None:
        """Rename the log's directory, for a deletion or a move; not durable."""
        self._log_path.rename_to(self.environment.files, directory)
        self.segments.moved_to(directory)

    # --- failures ---

    def fail(self, error: BaseException) -> None:
        """Report an I/O error. The log directory goes offline if the disk failed (`storage.files.failures`).

        Errors of a closed log, which may be deleted, prove nothing about the directory."""
        if not self.is_closed:
            self.log_directory.fail(error)

    def read_failed(self, error: OSError) -> None:
        """Report a failed read. The log goes out of service (`storage.files.failures`)."""
        if reach_of(error) is Reach.REQUEST or self.on_unreadable is None:
            self.fail(error)
        elif not self.is_closed:
            self.on_unreadable(self, error)

    def _offline(self) -> KafkaStorageError:
        return KafkaStorageError(f"the log of {self.topic_partition} is offline")

    @contextmanager
    def guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.fail(error)
            raise KafkaStorageError(f"{doing} of {self.topic_partition}: {error}") from error

    @contextmanager
    def guarded_read(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.read_failed(error)
            raise KafkaStorageError(f"{doing} of {self.topic_partition}: {error}") from error

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, start={self.log_start_offset}, "
            f"high_watermark={self.high_watermark}, end={self.log_end_offset})"
        )
