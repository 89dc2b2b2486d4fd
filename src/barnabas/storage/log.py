"""The log of one partition.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

Offsets below the start are gone, those from the end on do not exist yet; consumers read to
the high watermark or to the last stable offset, followers to the end. The order above holds
at all times, and offsets are never used twice.

The log answers for three things. An append is all or nothing: checked first, written in one
system call, recorded last; when the write fails, the directory goes offline and nothing here
has changed. A read is a region of one segment file, found without looking at records. What
is acknowledged (`durable_end_offset`) waits for the disk where the topic asks for that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

from barnabas.core.errors import (
    InconsistentTopicId,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.core.regions import FileRegion
from barnabas.records.batch import RecordBatch
from barnabas.records.validation import ValidatedRecords, assign_offsets, validate_produce
from barnabas.storage import producer_recovery, time_search
from barnabas.storage.append import NO_OFFSET, AppendInfo, replicated_batches, trusted_records
from barnabas.storage.directory_properties import render_topic_id
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.flush import FlushWork
from barnabas.storage.index import CorruptIndex
from barnabas.storage.leader_epoch_cache import LeaderEpochCache
from barnabas.storage.log_config import LogConfig
from barnabas.storage.names import (
    DELETED,
    LOG,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    SEGMENT_SUFFIXES,
    segment_path,
)
from barnabas.storage.producer_state import (
    AppendOrigin,
    BatchMetadata,
    CompletedTransaction,
    ProducerEntry,
    ProducerState,
)
from barnabas.storage.retention import deletable_segments
from barnabas.storage.segment import Segment
from barnabas.storage.segments import Segments
from barnabas.storage.time_search import TimestampAndOffset
from barnabas.storage.transaction_index import AbortedTransaction, record_aborted

_log = logging.getLogger(__name__)


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


class Log:
    """Made by `log_loader.open_log`; owned by the loop."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log_directory: LogDirectory,
        directory: str,
        config: LogConfig,
        environment: Environment,
        *,
        segments: Segments,
        producers: ProducerState,
        leader_epochs: LeaderEpochCache,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: Uuid | None = None,
        unsynced_paths: Iterable[str] = (),
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log_directory = log_directory
        self.directory = directory
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.recovery_point = recovery_point
        """Everything below is on disk."""
        self.is_flush_due = False
        """`flush.messages` is reached: appends wait for the disk."""
        self.request_flush: Callable[[Log], None] | None = None
        """Called when a flush becomes due, or a segment was closed; without it we flush at once."""
        self.last_flush_ms = environment.clock.now_ms()
        self.is_closed = False
        self._environment = environment
        self._clock = environment.clock
        self._acknowledgeable = log_end_offset
        """While a flush is due: what was acknowledgeable before it became so."""
        self._generation = 0
        self._flush_lock = Lock()
        self._directory_changes = 1
        self._directory_changes_synced = 0
        self._pending_paths = list(unsynced_paths)
        """Derived files that the next flush must sync."""
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._validation = config.validation_settings()
        self._index_interval_bytes = config.index_interval_bytes
        self._flush_messages = config.flush_messages
        self._segment_bytes = config.segment_bytes
        self._roll_after_ms = config.roll_after_ms
        self._segment_index_bytes = config.segment_index_bytes

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Remember the topic's id, in `partition.metadata` too; another one is refused."""
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            raise InconsistentTopicId(f"{self.topic_partition} has topic id {self.topic_id}, not {topic_id}")
        path = f"{self.directory}/{PARTITION_METADATA}"
        with self._guarded("writing the topic id"):
            self._environment.files.write(path, render_topic_id(topic_id))
        self._pending_paths.append(path)
        self.topic_id = topic_id

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    # -- appending ----------------------------------------------------------------------------

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
        base_offset = self.log_end_offset
        assign_offsets(validated, base_offset, leader_epoch)
        self._write(
            batches, validated.buffer, validated.max_timestamp, validated.offset_of_max_timestamp, now_ms
        )
        if leader_epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(leader_epoch, base_offset)
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
        newest = max(batches, key=lambda batch: batch.max_timestamp)
        self._write(
            batches,
            memoryview(records)[:size_bytes],
            newest.max_timestamp,
            newest.last_offset,
            self._clock.now_ms(),
        )
        epochs = self.leader_epochs
        for batch in batches:
            if batch.leader_epoch != epochs.latest_epoch and batch.leader_epoch >= 0:
                epochs.assign(batch.leader_epoch, batch.base_offset)
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
            if len(data) > self._segment_bytes:
                raise RecordListTooLarge(
                    f"{len(data)} bytes of records do not fit into a segment of {self._segment_bytes}"
                )
            segment = self.roll(batches[0].base_offset)
        try:
            segment.append(data, batches, max_timestamp, offset_of_max_timestamp, self._index_interval_bytes)
        except OSError as error:
            self._cut_after_failure(segment)
            self.fail(error)
            raise KafkaStorageError(f"appending to {self.topic_partition}: {error}") from error
        previous_end_offset = self.log_end_offset
        self.log_end_offset = next_offset
        for batch in batches:
            completed = self.producers.apply(batch, batch.base_offset)
            if completed is not None:
                self._complete_transaction(segment, completed)
        if next_offset - self.recovery_point >= self._flush_messages:
            if not self.is_flush_due:
                self.is_flush_due = True
                self._acknowledgeable = previous_end_offset
            self._flush_soon()

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

    # -- reading ------------------------------------------------------------------------------

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
        if self.log_directory.failure is not None:
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
            FileRegion(segment.file, position, length),
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
        try:
            found = segment.offset_index.offset_after(data.records.position + data.records.length)
        except CorruptIndex as error:
            segment.rebuild_indexes(str(error))
            found = segment.offset_index.offset_after(data.records.position + data.records.length)
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

    # -- watermarks ---------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or ended above the high watermark."""
        first = self.producers.first_unstable_offset
        return None if first is None else max(first, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended: committed readers read to here."""
        first = self.producers.first_unstable_offset
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self.log_start_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """A leader's way: it only grows. True when it did."""
        assert offset <= self.log_end_offset, "the high watermark cannot pass the end of the log"
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.high_watermark_advanced(offset)
        return True

    def update_high_watermark(self, offset: int) -> int:
        """A follower's way: set, within the log; returns what it became."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.high_watermark_advanced(self.high_watermark)
        return self.high_watermark

    @property
    def durable_end_offset(self) -> int:
        """What may be acknowledged: the end of the log, or what is on disk while a flush is due."""
        if self.is_flush_due:
            return max(self.recovery_point, self._acknowledgeable)
        return self.log_end_offset

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
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producers.log_start_offset_advanced(offset)
        return True

    # -- producers ----------------------------------------------------------------------------

    def active_producers(self) -> list[ProducerEntry]:
        return list(self.producers.producers.values())

    def has_ongoing_transaction(self, producer_id: int) -> bool:
        return self.producers.has_ongoing_transaction(producer_id)

    def remove_expired_producers(self) -> None:
        self.producers.remove_expired(self._clock.now_ms(), self._environment.producer_id_expiration_ms)

    # -- segments -----------------------------------------------------------------------------

    def roll(self, base_offset: int | None = None) -> Segment:
        """Close the active segment and start a new one; an empty one is kept as it is."""
        base_offset = self.log_end_offset if base_offset is None else max(base_offset, self.log_end_offset)
        active = self.segments.active
        if base_offset == active.base_offset:
            return active
        with self._guarded("rolling"):
            active.seal()
            segment = self._new_segment(base_offset)
            _ = segment.file
            self.segments.add(segment)
            self.producers.end_offset = base_offset
            self._pending_paths.extend(active.existing_paths()[1:])
            self._pending_paths.append(
                producer_recovery.write_snapshot(self._environment, self.directory, self.producers)
            )
            self._directory_changes += 1
        self._flush_soon()
        return segment

    def delete_old_segments(self) -> int:
        """Apply retention; returns how many segments went."""
        deleted = 0
        while True:
            with self._guarded("applying retention"):
                gone, reason = deletable_segments(
                    list(self.segments),
                    self.config,
                    log_start_offset=self.log_start_offset,
                    log_end_offset=self.log_end_offset,
                    high_watermark=self.high_watermark,
                    now_ms=self._clock.now_ms(),
                )
            if not gone:
                return deleted
            if len(gone) == len(self.segments):
                self.roll()
            following = self.segments.following(gone[-1])
            assert following is not None
            self.maybe_increment_log_start_offset(following.base_offset, f"segments deleted by {reason}")
            self._delete_segments(gone)
            deleted += len(gone)

    def _delete_segments(self, gone: list[Segment]) -> None:
        """Out of the log at once, out of the directory by name, off the disk later."""
        self.segments.drop(gone)
        with self._guarded("deleting segments"):
            renamed = [path for segment in gone for path in segment.rename(DELETED)]
        environment = self._environment

        def unlink() -> None:
            for path in renamed:
                environment.files.unlink(path)

        environment.scheduler.after(
            self.config.file_delete_delay_ms,
            lambda: environment.background.submit(unlink, lambda _: None, self.fail),
        )

    def truncate_to(self, offset: int) -> bool:
        """Remove the records from `offset` on; True when there were any."""
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with self._guarded("truncating"):
            beyond = [
                segment for segment in self.segments.starting_from(offset) if segment.base_offset > offset
            ]
            if beyond:
                self._delete_segments(beyond)
                # Were the old names to come back after a power cut, offsets would be there twice.
                self._environment.files.sync_directory(self.directory)
            active = self.segments.active
            active.truncate_to(offset)
            # Nor may old bytes come back behind the new ones that will be written here.
            active.file.sync()
        self._truncated(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.leader_epochs.truncate_from_end(offset)
        with self._guarded("rebuilding producer state"):
            self._reload_producers()
        self.update_high_watermark(self.high_watermark)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Throw everything away; the next append gets `offset`."""
        with self._guarded("truncating"):
            old = list(self.segments)
            for segment in old:
                self._remove_files(segment)
            self.segments.replace_all(self._new_segment(offset))
            _ = self.segments.active.file
            self._remove_snapshots()
            self._environment.files.sync_directory(self.directory)
        self._truncated(offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.leader_epochs.clear()
        self.producers = ProducerState(end_offset=offset)
        self.update_high_watermark(offset)

    def _truncated(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._acknowledgeable = min(self._acknowledgeable, offset)
        self._generation += 1

    def _reload_producers(self) -> None:
        environment = self._environment
        names = [entry.name for entry in environment.files.list(self.directory)]
        self.producers = producer_recovery.load_newest_snapshot(
            environment,
            self.directory,
            producer_recovery.snapshot_offsets(names),
            at_most=self.log_end_offset,
            at_least=self.segments.first.base_offset,
        )
        self._pending_paths.clear()
        producer_recovery.replay(
            self.producers, self.segments.since(self.producers.end_offset), end_offset=self.log_end_offset
        )

    def _new_segment(self, base_offset: int) -> Segment:
        jitter_ms = self.config.segment_jitter_ms
        return Segment(
            self._environment.files,
            self.directory,
            base_offset,
            created_ms=self._clock.now_ms(),
            roll_jitter_ms=self._environment.randomness.randrange(0, jitter_ms) if jitter_ms else 0,
        )

    def _remove_files(self, segment: Segment) -> None:
        for suffix in SEGMENT_SUFFIXES:
            self._environment.files.unlink(segment.path(suffix))

    def _remove_snapshots(self) -> None:
        files = self._environment.files
        names = [entry.name for entry in files.list(self.directory)]
        for offset in producer_recovery.snapshot_offsets(names):
            files.unlink(segment_path(self.directory, offset, PRODUCER_SNAPSHOT))
        self._pending_paths.clear()

    # -- flushing -----------------------------------------------------------------------------

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def plan_flush(self) -> FlushWork | None:
        """What must be synced; None when everything is on disk already."""
        epochs = self.leader_epochs
        is_directory_changed = self._directory_changes != self._directory_changes_synced
        if self.log_end_offset <= self.recovery_point and not (is_directory_changed or epochs.is_dirty):
            return None
        return FlushWork(
            self._environment.files,
            self.directory,
            self._flush_lock,
            target_offset=self.log_end_offset,
            generation=self._generation,
            data_files=[segment.file for segment in self.segments.since(self.recovery_point)],
            derived_paths=list(self._pending_paths),
            epochs_version=epochs.version,
            epochs_content=epochs.render() if epochs.is_dirty else None,
            directory_changes=self._directory_changes,
            is_directory_changed=is_directory_changed,
            is_new=self._directory_changes_synced == 0,
        )

    def flush_completed(self, work: FlushWork | None) -> None:
        """The work is done: the recovery point moves, and acknowledgements may leave."""
        if work is not None:
            if work.generation == self._generation:
                self.recovery_point = max(self.recovery_point, work.target_offset)
            synced = set(work.derived_paths)
            self._pending_paths = [path for path in self._pending_paths if path not in synced]
            self._directory_changes_synced = max(self._directory_changes_synced, work.directory_changes)
            if work.epochs_content is not None:
                self.leader_epochs.written(work.epochs_version)
        self.last_flush_ms = self._clock.now_ms()
        self._acknowledgeable = max(self._acknowledgeable, self.recovery_point)
        self.is_flush_due = self.unflushed_messages >= self._flush_messages

    def flush(self) -> None:
        """Force everything to disk, here and now."""
        work = self.plan_flush()
        if work is not None:
            with self._guarded("flushing"):
                work()
        self.flush_completed(work)

    def _flush_soon(self) -> None:
        if self.request_flush is not None:
            self.request_flush(self)
        else:
            self.flush()

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, complete the indexes, write the producer snapshot. The next start trusts all of it."""
        if self.is_closed:
            return
        if self.log_directory.failure is None:
            with self._guarded("closing"):
                self.segments.active.seal()
                self.producers.end_offset = self.log_end_offset
                self._pending_paths.extend(self.segments.active.existing_paths()[1:])
                self._pending_paths.append(
                    producer_recovery.write_snapshot(self._environment, self.directory, self.producers)
                )
                self._directory_changes += 1
            self.flush()
        self.release()

    def release(self) -> None:
        """Close the files without writing anything."""
        self.is_closed = True
        for segment in self.segments:
            segment.release()

    def release_idle_segments(self) -> None:
        """Close the files of every segment that no longer grows; they open again when read."""
        for segment in self.segments:
            if segment is not self.segments.active:
                segment.release()

    def renamed(self, directory: str) -> None:
        """The log's directory has a new name (on its way to deletion, or moved)."""
        self.directory = directory
        for segment in self.segments:
            segment.moved_to(directory)

    def fail(self, error: BaseException) -> None:
        """An I/O error: the whole directory goes offline."""
        self.log_directory.fail(error)

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.fail(error)
            raise KafkaStorageError(f"{doing} of {self.topic_partition}: {error}") from error

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, start={self.log_start_offset}, high_watermark={self.high_watermark}, "
            f"end={self.log_end_offset})"
        )
