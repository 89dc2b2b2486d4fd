"""The layer that makes, closes and removes segments: rolling, retention, truncation."""

from __future__ import annotations

from barnabas.storage.log.flush import CutWork
from barnabas.storage.log.log_flushing import FlushingLog
from barnabas.storage.log.retention import deletable_segments
from barnabas.storage.names import (
    DELETED,
    LEADER_EPOCHS,
    PRODUCER_SNAPSHOT,
    SEGMENT_SUFFIXES,
    SWAP,
    segment_path,
)
from barnabas.storage.producers import producer_recovery
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.segment.segment import Segment


class SegmentedLog(FlushingLog):
    unsynced_cut: CutWork | None = None
    """A truncation that may not be on disk yet."""

    def roll(self, base_offset: int | None = None) -> Segment:
        """Close the active segment and start a new one; an empty one is kept as it is."""
        base_offset = self.log_end_offset if base_offset is None else max(base_offset, self.log_end_offset)
        active = self.segments.active
        if base_offset == active.base_offset:
            return active
        self.sync_cut()
        with self._guarded("rolling"):
            # The new segment comes last: when it is there, nothing can fail any more.
            active.seal()
            self.producers.end_offset = base_offset
            snapshot = producer_recovery.write_snapshot(self._environment, self.directory, self.producers)
            segment = self._new_segment(base_offset).create()
            self.segments.add(segment)
            self._pending_paths.extend([*active.existing_paths()[1:], snapshot])
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
            if following.path(PRODUCER_SNAPSHOT) in self._pending_paths:
                # The snapshot will be all that is left of the producers: first it must be on disk.
                self._flush_soon()
                if following.path(PRODUCER_SNAPSHOT) in self._pending_paths:
                    return deleted
            self.maybe_increment_log_start_offset(following.base_offset, f"segments deleted by {reason}")
            self._delete_segments(gone)
            deleted += len(gone)

    def _delete_segments(self, gone: list[Segment]) -> None:
        """Out of the log at once, out of the directory by name, off the disk later."""
        self.segments.drop(gone)
        with self._guarded("deleting segments"):
            renamed = [path for segment in gone for path in segment.rename(DELETED)]
        self.unlink_later(renamed)

    def replace_segments(self, old: list[Segment], new: Segment) -> list[str]:
        """Put a compacted segment, complete and on disk, in the place of those it was made from.

        Whoever is reading from an old one keeps its file. Returns the names that the old files
        have now: once the directory has been synced, `unlink_later` may have them."""
        renamed = []
        with self._guarded("swapping in a compacted segment"):
            new.change_name_suffix(SWAP)
            self.segments.replace(old, new)
            for segment in old:
                # The snapshot at the start of the new segment is that of the first old one.
                is_first = segment.base_offset == new.base_offset
                renamed += segment.rename(DELETED, is_snapshot_included=not is_first)
            new.change_name_suffix("")
            self._directory_changes += 1
        return renamed

    def unlink_later(self, paths: list[str]) -> None:
        environment = self._environment

        def unlink() -> None:
            for path in paths:
                environment.files.unlink(path)

        environment.scheduler.after(
            self.config.file_delete_delay_ms,
            lambda: environment.background.submit(unlink, lambda _: None, self.fail),
        )

    def truncate_to(self, offset: int, *, is_sync_deferred: bool = False) -> bool:
        """Remove the records from `offset` on; True when there were any.

        It is on disk on return, or, where somebody else syncs many at once (`unsynced_cut`), before the
        next record is written at the latest."""
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        target = self.segments.floor(offset)
        assert target is not None
        with self._guarded("truncating"):
            # First what has to be read and opened: it may be refused. Then all that changes.
            end_position = target.prepare_cut(offset)
            producers = self._producers_at(offset, target)
            cut = CutWork(self._environment.files, target.file, self.directory)
            beyond = [each for each in self.segments.starting_from(offset) if each.base_offset > offset]
            if beyond:
                self._delete_segments(beyond)
            else:
                cut.directory = None
            self.unsynced_cut = cut
            self._directory_changes += 1  # so that a flush, and the end, sync it as well
            target.truncate_to(offset, end_position)
        self._truncated(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.leader_epochs.truncate_from_end(offset)
        self.producers = producers
        self.update_high_watermark(self.high_watermark)
        if not is_sync_deferred:
            self.sync_cut()
        return True

    def sync_cut(self) -> None:
        """Make the last truncation last, here and now."""
        cut = self.unsynced_cut
        if cut is not None:
            with self._guarded("truncating"):
                cut()
            self.cut_synced(cut)

    def cut_synced(self, cut: CutWork | None, error: OSError | None = None) -> None:
        """The work was done elsewhere, or failed there."""
        if error is not None:
            with self._guarded("truncating"):
                raise error
        if self.unsynced_cut is cut:
            self.unsynced_cut = None

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Throw everything away; the next append gets `offset`."""
        self.leader_epochs.clear()
        with self._guarded("truncating"):
            for segment in self.segments:
                self._remove_files(segment)
            self.segments.replace_all(self._new_segment(offset).create())
            self._remove_snapshots()
            # Old epochs would claim offsets that they never had; replacing syncs the directory too.
            self._environment.files.replace(f"{self.directory}/{LEADER_EPOCHS}", self.leader_epochs.render())
        self.unsynced_cut = None
        self._truncated(offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.producers = ProducerState(end_offset=offset)
        self.update_high_watermark(offset)

    def _truncated(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._acknowledgeable = min(self._acknowledgeable, offset)
        self.generation += 1

    def _producers_at(self, offset: int, segment: Segment) -> ProducerState:
        """As the log will know them when it ends at `offset`, which lies in `segment`."""
        environment = self._environment
        found = segment.find(offset)
        end_offset = offset if found is None else min(offset, found.base_offset)
        names = [entry.name for entry in environment.files.list(self.directory)]
        producers = producer_recovery.load_newest_snapshot(
            environment,
            self.directory,
            producer_recovery.snapshot_offsets(names),
            at_most=end_offset,
            at_least=self.segments.first.base_offset,
        )
        producer_recovery.replay(producers, self.segments.since(producers.end_offset), end_offset=end_offset)
        producers.end_offset = offset
        return producers

    def _new_segment(self, base_offset: int) -> Segment:
        jitter_ms = self.config.segment_jitter_ms
        return Segment(
            self._environment.files,
            self.directory,
            base_offset,
            created_ms=self._clock.now_ms(),
            index_interval_bytes=self._index_interval_bytes,
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
