"""The log of one partition, put together from its parts.

It owns its segments (`segments`), how far it goes (`watermarks`), what of it is on disk (`flush_state`), what
it remembers of producers (`storage.producers`) and which leader wrote what (`leader_epoch_cache`). Each part
keeps its own state; here stands in which order they change. What a log does rarely is functions over it:
`retention`, `truncation`, `time_search`.

An append is all or nothing: checked first, written in one system call, recorded last. When
the write fails, the directory goes offline and nothing here has changed. Offsets are never
used twice. A large one is written by a thread (`append_elsewhere`), in the same three steps.

What a leader has written is taken, however large: `segment.bytes` may be smaller today than when it was
written. A follower's piece is divided between batches, and a batch that is larger than a segment may be
gets one of its own.
"""

from __future__ import annotations

import logging
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
from barnabas.core.sweeping import complain
from barnabas.records.batch import RecordBatch
from barnabas.records.validation import ValidatedRecords, assign_offsets, validate_produce
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.log import reading
from barnabas.storage.log.append import AppendInfo, divided, replicated_batches, trusted_records
from barnabas.storage.log.flush_state import CutWork, FlushState, FlushWork
from barnabas.storage.log.leader_epoch_cache import LeaderEpochCache
from barnabas.storage.log.log_home import LogHome
from barnabas.storage.log.partition_metadata import render_topic_id
from barnabas.storage.log.reading import FetchData
from barnabas.storage.log.segments import Segments, new_segment
from barnabas.storage.log.watermarks import Watermarks
from barnabas.storage.log.write_elsewhere import WriteElsewhere
from barnabas.storage.names import PARTITION_METADATA
from barnabas.storage.producers.append_checks import AppendOrigin
from barnabas.storage.producers.producer_entry import ProducerEntry
from barnabas.storage.producers.producer_recovery import record_aborted, write_snapshot
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.removal import unlink_later
from barnabas.storage.segment.segment import Segment

_log = logging.getLogger(__name__)


class Log:
    """Made by `log_loader.open_log`; owned by the loop."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        log_directory: LogDirectory,
        home: LogHome,
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
        self._home = home
        self.environment = environment
        self._clock = environment.clock
        self._validation = config.validation_settings()
        self._roll_after_ms = config.roll_after_ms
        self._request_flush: Callable[[Log], None] | None = None
        self.writing: WriteElsewhere | None = None
        """A large append whose bytes are not in the file yet; the log does not know of it yet."""
        self.waiting: deque[Callable[[], None]] = deque()
        """Who wants to append when that is written, in line."""
        self.is_line_moving = False
        """Somebody lets them have their turns."""

    @property
    def directory(self) -> str:
        return self._home.directory

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._validation = config.validation_settings()
        self._roll_after_ms = config.roll_after_ms
        self.segments.update_index_interval(config.index_interval_bytes)

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Remember the topic's id, in `partition.metadata` too; another one is refused."""
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            raise InconsistentTopicId(f"{self.topic_partition} has topic id {self.topic_id}, not {topic_id}")
        path = f"{self.directory}/{PARTITION_METADATA}"
        with self.guarded("writing the topic id"):
            self.environment.files.write(path, render_topic_id(topic_id))
        self.flush_state.wrote(path)
        self.topic_id = topic_id

    # -- appending ----------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: bytearray | memoryview,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Give the records their offsets and write them. Offsets and epoch are patched into `records`."""
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
        self, records: bytearray | memoryview, leader_epoch: int, origin: AppendOrigin, now_ms: int
    ) -> ValidatedRecords | AppendInfo:
        """The records as they are to be written, or what is known of them if they were here before."""
        if origin is AppendOrigin.CLIENT:
            validated = validate_produce(records, settings=self._validation, now_ms=now_ms)
        else:
            validated = trusted_records(records, self._validation, now_ms)
        duplicate = self.producers.check(validated.batches, origin)
        if duplicate is not None:
            return AppendInfo.of_duplicate(duplicate, self.watermarks.log_start_offset)
        size_bytes = len(validated.buffer)
        if size_bytes > self.config.segment_bytes:
            raise RecordListTooLarge(
                f"{size_bytes} bytes of records do not fit into a segment of {self.config.segment_bytes}"
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

    # -- appending, with the write elsewhere (`append_elsewhere`) -------------------------------

    @property
    def is_being_written(self) -> bool:
        """Whether an append has to get in line, behind one that a thread writes."""
        return self.writing is not None or len(self.waiting) > 0

    def settle(self) -> None:
        """Have the write that is under way done, by us if no thread has begun it: what follows finds the log
        as it would be if everything had been written at once. Who appended hears of it later."""
        writing = self.writing
        if writing is None:
            return
        writing.perform()
        self.writing = None
        try:
            writing.outcome = self._take_note(writing)
        except KafkaError as error:
            writing.outcome = error
        except Exception as error:  # noqa: BLE001 - who appended must hear something, whatever it is
            complain("taking note of an append", self.topic_partition, error)
            writing.outcome = UnknownServerError("the broker met an unexpected error; its log says more")

    def _take_note(self, writing: WriteElsewhere) -> AppendInfo:
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
        except OSError as error:  # the write, or that of an index
            segment.cut_after_failure()
            self.fail(error)
            raise KafkaStorageError(f"appending to {self.topic_partition}: {error}") from error
        self._appended(segment, validated.batches)
        return self._append_info(validated, writing.base_offset)

    # -- appending what the leader wrote -------------------------------------------------------

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> AppendInfo:
        """Write what the leader wrote: its offsets, its epochs. A partial batch at the end is left out."""
        self.settle()
        batches, watermarks = replicated_batches(records), self.watermarks
        if not batches:
            return AppendInfo(NO_OFFSET, NO_OFFSET, watermarks.log_start_offset)
        first, last = batches[0], batches[-1]
        if first.base_offset < watermarks.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: the leader's batch at {first.base_offset} lies before the log end "
                f"offset {watermarks.log_end_offset}"
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
        """Where the batches are to be written."""
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
        except OSError as error:  # the first append after a start looks into the file
            self.fail(error)
            raise KafkaStorageError(f"appending to {self.topic_partition}: {error}") from error
        if is_complete:
            segment = self.roll(batches[0].base_offset)
        if last.is_control or len(batches) > 1:
            with self.guarded("reading the transaction index"):
                segment.transaction_index.load()
        return segment

    def _appended(self, segment: Segment, batches: list[RecordBatch]) -> None:
        """The batches are in the file: whatever else is known of the log must say so from here on."""
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

    # -- reading ------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True
    ) -> FetchData:
        """The batches from the one that holds `offset` on, below `upper_offset`, of one segment."""
        watermarks = self.watermarks
        log_end_offset = watermarks.log_end_offset
        if not watermarks.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is not within "
                f"[{watermarks.log_start_offset}, {log_end_offset}]"
            )
        if offset >= upper_offset or offset == log_end_offset:
            return FetchData(offset, b"")
        if self.is_closed or self.log_directory.failure is not None:
            raise self._offline()
        try:
            return reading.read(self.segments, offset, max_bytes, upper_offset, log_end_offset, min_one_batch)
        except OSError as error:
            self.fail(error)
            raise KafkaStorageError(f"reading {self.topic_partition}: {error}") from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """`(epoch, end offset)` of the largest epoch up to `epoch`; both -1 when unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # -- watermarks ---------------------------------------------------------------------------

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
        """Below it every transaction has ended: committed readers read to here."""
        first = self.producers.first_unstable_offset
        watermarks = self.watermarks
        return watermarks.high_watermark if first is None else watermarks.last_stable_offset(first)

    @property
    def durable_end_offset(self) -> int:
        """What may be acknowledged: the end of the log, or what is on disk while a flush is due."""
        return self.flush_state.durable_end_offset(self.watermarks.log_end_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """Of leaders and followers alike: it only grows. True when it did."""
        if not self.watermarks.advance_high_watermark(offset):
            return False
        self.producers.high_watermark_advanced(offset)
        return True

    def update_high_watermark(self, offset: int) -> int:
        """After a start, a move or a cut: set, within the log; returns what it became."""
        high_watermark = self.watermarks.update_high_watermark(offset)
        self.producers.high_watermark_advanced(high_watermark)
        return high_watermark

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Forget the records below `offset`; their segments go with the next retention run."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"the log start offset of {self.topic_partition} cannot become {offset}: that is beyond "
                f"the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        _log.info("log start offset of %s is now %d: %s", self.topic_partition, offset, reason)
        self.watermarks.advance_log_start(offset)
        self.leader_epochs.truncate_from_start(offset)
        self.producers.log_start_offset_advanced(offset)
        return True

    # -- producers ----------------------------------------------------------------------------

    def active_producers(self) -> list[ProducerEntry]:
        return list(self.producers.producers.values())

    def replace_producers(self, producers: ProducerState) -> None:
        """The log was cut: here is what it still knows of its producers."""
        self.producers = producers
        producers.high_watermark_advanced(self.high_watermark)

    def remove_expired_producers(self) -> None:
        self.producers.remove_expired(
            self._clock.now_ms(), self.environment.settings.producer_id_expiration_ms
        )

    # -- segments -----------------------------------------------------------------------------

    def roll(self, base_offset: int | None = None) -> Segment:
        """Close the active segment and start a new one; an empty one is kept as it is."""
        self.settle()
        end_offset = self.watermarks.log_end_offset
        base_offset = end_offset if base_offset is None else max(base_offset, end_offset)
        active = self.segments.active
        if base_offset == active.base_offset:
            return active
        self.sync_cut()
        with self.guarded("rolling"):
            # The new segment comes last: when it is there, nothing can fail any more.
            active.seal()
            snapshot = write_snapshot(self.environment.files, self.directory, self.producers, base_offset)
            segment = new_segment(self.environment, self.directory, base_offset, self.config).create()
            self.segments.add(segment)
            self.flush_state.names_changed([*active.derived_paths(), snapshot])
        self._flush_soon()
        return segment

    def delete_segments(self, gone: list[Segment]) -> None:
        """Out of the log at once, out of the directory by name, off the disk later."""
        with self.guarded("deleting segments"):
            renamed = self.segments.delete(gone)
            self.flush_state.names_changed()
        self.unlink_later(renamed)

    def replace_segments(self, old: list[Segment], new: Segment) -> list[str]:
        """Put a compacted segment, complete and on disk, in the place of those it was made from.

        Returns the names that the old files have now: once the directory has been synced, `unlink_later`
        may have them."""
        with self.guarded("swapping in a compacted segment"):
            renamed = self.segments.replace(old, new)
            self.flush_state.names_changed()
        return renamed

    def unlink_later(self, paths: list[str]) -> None:
        unlink_later(self.environment, paths, self.fail, delay_ms=self.config.file_delete_delay_ms)

    # -- flushing -----------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk."""
        return self.flush_state.recovery_point

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def flush_by(self, request: Callable[[Log], None]) -> None:
        """Call this when a flush becomes due, or a segment was closed; until then we flush at once."""
        self._request_flush = request

    def plan_flush(self) -> FlushWork | None:
        """What must be synced; None when everything is on disk already."""
        return self.flush_state.plan(self.log_end_offset, self.segments, self.leader_epochs)

    def flush_completed(self, work: FlushWork | None) -> None:
        """The work is done: the recovery point moves, and acknowledgements may leave."""
        if work is not None and work.epochs_content is not None:
            self.leader_epochs.written(work.epochs_version)
        self.flush_state.completed(
            work, self.log_end_offset, self.config.flush_messages, self._clock.now_ms()
        )

    def flush(self) -> None:
        """Force everything to disk, here and now."""
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
        """Whether a derived file is on disk; it soon is if not."""
        if self.flush_state.is_unsynced(path):
            self._flush_soon()
        return not self.flush_state.is_unsynced(path)

    def write_epochs_soon(self) -> None:
        """Bring the epoch file up to date, off the loop, without forcing records to disk."""
        write = self.flush_state.plan_epochs(self.leader_epochs)
        self.environment.background.submit(write, self.leader_epochs.written, self.fail)

    def sync_cut(self) -> None:
        """Make the last truncation last, here and now."""
        cut = self.flush_state.unsynced_cut
        if cut is not None:
            with self.guarded("truncating"):
                cut()
            self.flush_state.cut_synced(cut)

    def cut_synced(self, cut: CutWork | None, error: OSError | None = None) -> None:
        """The truncation was synced elsewhere, or that failed."""
        if error is not None:
            with self.guarded("truncating"):
                raise error
        self.flush_state.cut_synced(cut)

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, complete the indexes, write the producer snapshot. The next start trusts all of it."""
        work = self.plan_close()
        if work is not None:
            with self.guarded("closing"):
                work()
            self.flush_completed(work)
        self.release()

    def plan_close(self) -> FlushWork | None:
        """What is left to be synced; None for a log that is as the last clean shutdown left it."""
        self.settle()
        if self.is_closed or self.log_directory.failure is not None:
            return None
        end_offset = self.log_end_offset
        if self.flush_state.is_as_settled(end_offset) and self.plan_flush() is None:
            return None
        active = self.segments.active
        with self.guarded("closing"):
            active.close_for_now()
            snapshot = write_snapshot(self.environment.files, self.directory, self.producers, end_offset)
            self.flush_state.names_changed([*active.derived_paths(), snapshot])
        return self.plan_flush()

    def release(self) -> None:
        """Close the files without writing anything."""
        self.is_closed = True
        self.segments.release()

    def rename_to(self, directory: str) -> None:
        """Give the log's directory a new name (on its way to deletion, or moved); not durable."""
        self._home.rename_to(self.environment.files, directory)
        self.segments.moved_to(directory)

    # -- failures -----------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """An I/O error: the whole directory goes offline, if it is the disk that failed (`storage.failures`).

        A log that is closed, perhaps deleted, has no files to speak for the directory."""
        if not self.is_closed:
            self.log_directory.fail(error)

    def _offline(self) -> KafkaStorageError:
        return KafkaStorageError(f"the log of {self.topic_partition} is offline")

    @contextmanager
    def guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.fail(error)
            raise KafkaStorageError(f"{doing} of {self.topic_partition}: {error}") from error

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, start={self.log_start_offset}, "
            f"high_watermark={self.high_watermark}, end={self.log_end_offset})"
        )
