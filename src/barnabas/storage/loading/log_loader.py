"""Log loader: opens the log of one partition, after a clean shutdown or a crash.

The order is fixed:

1. Complete or undo interrupted swaps (`interrupted_swaps`).
2. Load the segments.
3. Without a clean shutdown, verify all batches from the recovery point on. Each must be whole and have a
   valid CRC, and the log ends before the first that is not. The same pass derives the indexes, the
   transaction index, the producer state and the leader epochs again.

Records above the recovery point may be on disk in any combination of parts. Records below it were synced
before the recovery point moved, and are trusted.

A gap is a segment that starts above the end of the previous one. It has one of two causes:

- Compaction makes gaps, and a follower of a compacted log copies them. They are valid, even if the topic's
  cleanup policy has changed since.
- A power cut lost the end of the previous segment. The log must end there, or replicas would differ.

The index of a closed segment holds where the segment ended (`Segment.seal`), and its name is on disk before
that of the next segment. So an index with another end, or with no entry, proves a loss. A missing index
proves nothing: a segment that compaction emptied has none, or the file was deleted later. Then a time index
with an offset above the end of the segment proves a loss. Below the cleaner's checkpoint every gap is valid:
rewritten segments were on disk before the checkpoint.

Apache Kafka does not close segments in this way, and its followers of compacted logs have gaps that their own
cleaner did not make. After a crash of Apache Kafka every gap is valid, as it is for Apache Kafka.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from barnabas.config.log_config import LogConfig
from barnabas.core.ids import TopicPartition
from barnabas.storage.files import names
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.files.log_path import LogPath
from barnabas.storage.loading.interrupted_swaps import finish_interrupted_swaps
from barnabas.storage.loading.segment_recovery import compare_with_markers, derive
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.flush_state import FlushState
from barnabas.storage.log.parts.leader_epoch_cache import LeaderEpochCache, read_leader_epochs
from barnabas.storage.log.parts.partition_metadata import read_topic_id
from barnabas.storage.log.parts.segments import Segments, new_segment
from barnabas.storage.log.parts.watermarks import Watermarks
from barnabas.storage.log.producer_recovery import (
    load_newest_snapshot,
    record_aborted,
    replay,
    snapshot_offsets,
    write_snapshot,
)
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.segment.offset_index import OffsetIndex
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.time_index import TimeIndex

logger = logging.getLogger(__name__)


def open_log(
    topic_partition: TopicPartition,
    log_directory: LogDirectory,
    directory: str,
    config: LogConfig,
    environment: Environment,
    *,
    is_clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    cleaned_offset: int = 0,
    are_ends_unknown: bool = False,
) -> Log:
    """Open the log in `directory`, or create it.

    - `is_clean`: the last shutdown closed every log, so no batch needs verification.
    - `cleaned_offset`: the cleaner's checkpoint, although the topic may not be compacted any more.
    - `are_ends_unknown`: Apache Kafka wrote the segments, and their indexes do not hold where they end."""
    is_new = environment.files.make_directory(directory)
    loader = _Loader(
        directory, config, environment, cleaned_offset=cleaned_offset, are_ends_unknown=are_ends_unknown
    )
    if not is_new:
        loader.sizes = finish_interrupted_swaps(environment.files, directory)
        loader.load_segments()
    has_epochs = names.LEADER_EPOCHS in loader.sizes
    epochs = read_leader_epochs(environment.files, directory) if has_epochs else LeaderEpochCache([])
    producers = loader.recover(epochs, recovery_point, log_start_offset, is_clean=is_clean)
    first_offset = max(log_start_offset, loader.segments[0].base_offset)
    end_offset = loader.end_offset
    epochs.truncate_from_end(end_offset)
    loader.complete_epochs(epochs)
    epochs.truncate_from_start(first_offset)
    loader.remove_stray_snapshots(end_offset)
    producers.high_watermark_advanced(first_offset)
    is_settled = is_clean and not loader.has_changed
    log_path = LogPath(directory)
    return Log(
        topic_partition,
        read_topic_id(environment.files, directory) if names.PARTITION_METADATA in loader.sizes else None,
        log_directory,
        log_path,
        config,
        environment,
        segments=Segments(loader.segments),
        watermarks=Watermarks(first_offset, end_offset),
        flush_state=FlushState(
            environment.files,
            log_path,
            recovery_point=end_offset if is_settled else min(recovery_point, end_offset),
            log_end_offset=end_offset,
            now_ms=environment.clock.now_ms(),
            flush_messages=config.flush_messages,
            unsynced_paths=loader.unsynced_paths,
            is_settled=is_settled,
        ),
        producers=producers,
        leader_epochs=epochs,
    )


@dataclass(slots=True)
class _Loader:
    directory: str
    config: LogConfig
    environment: Environment
    cleaned_offset: int = 0
    """A segment below need not end where the next one begins."""
    are_ends_unknown: bool = False
    """No segment needs to."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The files of the directory and how large they are."""
    segments: list[Segment] = field(default_factory=list)
    end_offset: int = 0
    has_changed: bool = False
    """Whether a repair was needed, so that the end may not be on disk."""
    are_transactions_doubtful: bool = False
    """Whether the transaction indexes of the trusted segments must be derived again."""
    unsynced_paths: list[str] = field(default_factory=list)
    """Derived files that the next flush must sync."""

    # --- segments ---

    def load_segments(self) -> None:
        by_offset: dict[int, dict[str, int]] = {}
        for name, size_bytes in self.sizes.items():
            found = names.parse_segment_file(name)
            if found and found[1] in names.SEGMENT_SUFFIXES:
                by_offset.setdefault(found[0], {})[found[1]] = size_bytes
        for base_offset, file_bytes in sorted(by_offset.items()):
            if names.LOG not in file_bytes:
                logger.warning("deleting orphaned index files %s/%020d.*", self.directory, base_offset)
                for suffix in file_bytes:
                    self.environment.files.unlink(names.segment_path(self.directory, base_offset, suffix))
                continue
            self.segments.append(self._segment(base_offset, file_bytes))

    def _segment(self, base_offset: int, file_bytes: dict[str, int] | None = None) -> Segment:
        return new_segment(self.environment, self.directory, base_offset, self.config, file_bytes)

    def _check_indexes(self, segment: Segment) -> None:
        """Rebuild indexes that are missing or have a wrong size. First use finds and repairs other damage."""
        offset_bytes = self.sizes.get(f"{segment.base_offset:020d}{names.OFFSET_INDEX}")
        time_bytes = self.sizes.get(f"{segment.base_offset:020d}{names.TIME_INDEX}")
        if offset_bytes is None or time_bytes is None:
            segment.rebuild_indexes("an index file is missing")
            self.are_transactions_doubtful = True
        elif offset_bytes % OffsetIndex.entry.size or time_bytes % TimeIndex.entry.size:
            segment.rebuild_indexes("an index ends inside an entry")
        try:
            segment.transaction_index.check()
            if segment.transaction_index.entries and not segment.transaction_index.has_checksum:
                compare_with_markers(segment)
                segment.transaction_index.save_checksum()
                self.unsynced_paths.append(segment.transaction_index.checksum_path)
        except CorruptIndex as error:
            logger.warning("rebuilding the transaction indexes of %s: %s", self.directory, error)
            self.are_transactions_doubtful = True

    # --- recovery ---

    def recover(
        self, epochs: LeaderEpochCache, recovery_point: int, log_start_offset: int, *, is_clean: bool
    ) -> ProducerState:
        """Verify the log from the recovery point on; sets `end_offset` and returns the producer state."""
        trusted_count = len(self.segments)
        if not is_clean:
            trusted_count = max(0, sum(s.base_offset <= recovery_point for s in self.segments) - 1)
        suspect = self.segments[trusted_count:]
        del self.segments[trusted_count:]
        for segment in self.segments:
            if segment.size_bytes:
                self._check_indexes(segment)
        if suspect:
            self.end_offset = suspect[0].base_offset
        elif self.segments:
            self.end_offset = self.segments[-1].read_next_offset()
        producers = self._producers()
        if suspect:
            self._verify(suspect, epochs, producers)
        if self.segments:
            self.segments[-1].offset_index.grow_again()
            self.segments[-1].time_index.grow_again()
        for segment in self.segments:
            segment.release()  # an idle log has no open file
        return self._start_over_if_lost(epochs, producers, log_start_offset)

    def _producers(self) -> ProducerState:
        """Producer state at the end of the trusted segments."""
        first_offset = self.segments[0].base_offset if self.segments else self.end_offset
        if self.are_transactions_doubtful:
            # An aborted transaction may begin in an earlier segment, so the replay covers all of them.
            for segment in self.segments:
                segment.transaction_index.restart()
            replay(
                ProducerState(end_offset=first_offset),
                self.segments,
                end_offset=self.end_offset,
                on_completed=record_aborted,
            )
            for segment in self.segments:
                segment.transaction_index.replace()
        producers = load_newest_snapshot(
            self.environment,
            self.directory,
            snapshot_offsets(self.sizes),
            at_most=self.end_offset,
            at_least=first_offset,
        )
        behind = [s for s in self.segments if s.base_offset >= producers.end_offset]
        first = len(self.segments) - len(behind)
        replay(producers, self.segments[max(0, first - 1) :], end_offset=self.end_offset)
        return producers

    def _verify(self, suspect: list[Segment], epochs: LeaderEpochCache, producers: ProducerState) -> None:
        epochs.truncate_from_end(suspect[0].base_offset)
        is_whole = True
        for number, segment in enumerate(suspect):
            if number and self._is_out_of_place(segment, suspect[number - 1], is_whole):
                self._remove(suspect[number:])
                return
            if number:
                suspect[number - 1].seal()
                self.unsynced_paths.extend(suspect[number - 1].derived_paths())
                self._snapshot(producers, segment.base_offset)
            before_bytes = segment.size_bytes
            sealed_end, timed_end = segment.sealed_end(), segment.timed_end()
            derived = derive(segment, producers, epochs)
            self.end_offset = derived.end_offset
            if f"{segment.base_offset:020d}{names.OFFSET_INDEX}" in self.sizes:
                is_whole = sealed_end == derived.last_batch is not None
            else:
                is_whole = timed_end < derived.end_offset
            self.segments.append(segment)
            if segment.size_bytes < before_bytes:
                cut_bytes = before_bytes - segment.size_bytes
                logger.warning(
                    "%s: recovery truncated %d bytes at offset %d",
                    segment.path(names.LOG),
                    cut_bytes,
                    self.end_offset,
                )
                self.has_changed = True
                self._remove(suspect[number + 1 :])
                return

    def _is_out_of_place(self, segment: Segment, before: Segment, is_whole: bool) -> bool:
        """Whether the segment cannot follow the previous one; `is_whole`: that one ends as it was closed.

        A segment that starts too early is from before a truncation. No segment counts after a lost end."""
        if segment.base_offset > self.end_offset:
            return not (is_whole or self.are_ends_unknown or before.base_offset < self.cleaned_offset)
        return segment.base_offset < self.end_offset

    def _snapshot(self, producers: ProducerState, offset: int) -> None:
        self.unsynced_paths.append(write_snapshot(self.environment.files, self.directory, producers, offset))
        self.sizes[f"{offset:020d}{names.PRODUCER_SNAPSHOT}"] = 0

    def _remove(self, segments: list[Segment]) -> None:
        self.has_changed = True
        for segment in reversed(segments):  # the newest first: a crash leaves no gap
            logger.warning("deleting segment %s: the log ends before it", segment.path(names.LOG))
            segment.remove_files()
            self.environment.files.unlink(segment.path(names.PRODUCER_SNAPSHOT))

    def _start_over_if_lost(
        self, epochs: LeaderEpochCache, producers: ProducerState, log_start_offset: int
    ) -> ProducerState:
        """Restart an empty log at its start offset, if it ends below: its files were lost."""
        if self.segments and self.end_offset < log_start_offset:
            logger.warning(
                "%s: log end offset %d is below log start offset %d: the log starts again, empty",
                self.directory,
                self.end_offset,
                log_start_offset,
            )
            self._remove(self.segments)
            self.segments = []
            epochs.clear()
            producers = ProducerState(end_offset=log_start_offset)
        if not self.segments:
            self.segments = [self._segment(log_start_offset).create()]
            self.end_offset = log_start_offset
            self.has_changed = True
        return producers

    def complete_epochs(self, epochs: LeaderEpochCache) -> None:
        """Derive the epochs of the first batches, if the epoch file is lost or starts too late."""
        known_from = epochs.earliest[1] if epochs.earliest else self.end_offset
        missing: list[tuple[int, int]] = []
        for segment in self.segments:
            if segment.base_offset >= known_from:
                break
            for header in segment.headers():
                if header.leader_epoch < 0 or header.base_offset >= known_from:
                    break
                if not missing or missing[-1][0] < header.leader_epoch:
                    missing.append((header.leader_epoch, header.base_offset))
        epochs.prepend(missing)

    def remove_stray_snapshots(self, end_offset: int) -> None:
        """Remove all snapshots except those at segment starts and at the end of the log."""
        wanted = {segment.base_offset for segment in self.segments} | {end_offset}
        for offset in snapshot_offsets(self.sizes):
            if offset not in wanted:
                self.environment.files.unlink(
                    names.segment_path(self.directory, offset, names.PRODUCER_SNAPSHOT)
                )
