"""Flush state: the part of a log that is on disk, which is everything below the recovery point.

A crash may lose records above it, so they are not acknowledged while a flush is due (`flush.messages`): the
durable end holds back. A flush has two steps. The loop decides what to sync (`FlushState.plan`), and any
thread does it (`FlushWork`).

The order matters: records, derived files (a large producer snapshot is written here, `UnwrittenSnapshot`),
the epoch file, the names in the directory. The recovery point moves only when all of them are on disk,
because recovery never reads below it.

Meanwhile the log may be deleted and another log of the same name be created. Open files, and files that are
only synced, do not affect the new log. The epoch file is written by name, so it goes to the current path of
the log (`LogPath`).

A truncation must be on disk before new records overwrite the removed ones (`CutWork`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

from barnabas.core.files import DataFile, Files
from barnabas.storage.files.log_path import LogPath
from barnabas.storage.files.names import LEADER_EPOCHS
from barnabas.storage.log.parts.leader_epoch_cache import LeaderEpochCache
from barnabas.storage.log.parts.segments import Segments
from barnabas.storage.producers.unwritten_snapshot import UnwrittenSnapshot


@dataclass(slots=True)
class FlushWork:
    """One flush: called in a thread, then passed to `Log.flush_completed`."""

    files: Files
    log_path: LogPath
    lock: Lock
    """Lock of the log: two flushes of one log do not overlap."""
    target_offset: int
    """Every record below is durable afterwards."""
    generation: int
    """Generation of the log at the time of the plan: a truncation in between voids the outcome."""
    data_files: list[DataFile | str]
    """Data files of segments, or their names where they are closed: a log may have more of them than a
    process may open.
    """
    snapshots: list[UnwrittenSnapshot]
    """Snapshots to write before they are synced with the other derived files."""
    derived_paths: list[str]
    epochs_version: int
    epochs_content: bytes | None
    directory_changes: int
    is_directory_changed: bool
    is_new: bool
    """Whether the directory itself may not be on disk yet."""

    def __call__(self) -> FlushWork:
        with self.lock:
            for file in self.data_files:
                if isinstance(file, str):
                    self.log_path.sync(self.files, file)
                else:
                    file.sync()
            for snapshot in self.snapshots:
                snapshot.write(self.files)
            for path in self.derived_paths:
                try:
                    self.files.sync(path)
                except FileNotFoundError:
                    continue  # retention was faster: a deleted file needs no sync
            if self.epochs_content is not None:
                self.log_path.replace(self.files, LEADER_EPOCHS, self.epochs_content)
            elif self.is_directory_changed:
                self.files.sync_directory(self.log_path.directory)
            if self.is_new:
                self.files.sync_directory(self.log_path.directory.rpartition("/")[0])
        return self


@dataclass(frozen=True, slots=True)
class CutWork:
    """Sync of a truncation: called in a thread, then passed to `Log.cut_synced`."""

    files: Files
    file: DataFile
    directory: str | None
    """Directory of the log, if segments were deleted."""

    def __call__(self) -> None:
        if self.directory is not None:
            # After a power cut, old names could come back, and offsets would exist twice.
            self.files.sync_directory(self.directory)
        # Old bytes could also come back behind the next appends.
        self.file.sync()


class FlushState:
    def __init__(
        self,
        files: Files,
        log_path: LogPath,
        *,
        recovery_point: int,
        log_end_offset: int,
        now_ms: int,
        flush_messages: int,
        unsynced_paths: Iterable[str] = (),
        is_settled: bool = False,
    ) -> None:
        self._files = files
        self._log_path = log_path
        self.recovery_point = recovery_point
        """Offset below which every record is on disk."""
        self.is_due = log_end_offset - recovery_point >= flush_messages
        """Whether `flush.messages` is reached, so that appends wait for the disk.

        After a kill, the page cache still holds records that no flush has synced. They are in the log, and a
        producer that retries one gets its offset as the answer. So such a log is due from the start."""
        self.last_flush_ms = now_ms
        self.generation = 0
        """Number of truncations: a decision from before one may not hold after it."""
        self.unsynced_cut: CutWork | None = None
        """Truncation that may not be on disk yet."""
        self._acknowledgeable = recovery_point if self.is_due else log_end_offset
        """While a flush is due: the durable end before the flush became due."""
        self._lock = Lock()
        self._directory_changes = 1
        self._directory_changes_synced = 1 if is_settled else 0
        self._settled_offset = log_end_offset if is_settled else -1
        """Log end offset at which a clean shutdown left every file complete on disk."""
        self._unsynced_paths = list(unsynced_paths)
        """Derived files that the next flush must sync."""
        self._unwritten_snapshots: list[UnwrittenSnapshot] = []
        """Snapshots that the next flush must write before it syncs them."""

    def durable_end_offset(self, log_end_offset: int) -> int:
        """Offset up to which records may be acknowledged: while a flush is due, only those on disk."""
        return max(self.recovery_point, self._acknowledgeable) if self.is_due else log_end_offset

    def became_due(self, acknowledgeable: int) -> None:
        if not self.is_due:
            self.is_due = True
            self._acknowledgeable = acknowledgeable

    def wrote(self, path: str) -> None:
        """Record a small file that the next flush must sync."""
        self._unsynced_paths.append(path)

    def names_changed(self, unsynced_paths: Iterable[str] = ()) -> None:
        """Record that files were created, deleted or renamed; the next flush also syncs the given ones."""
        self._directory_changes += 1
        self._unsynced_paths.extend(unsynced_paths)

    def write_with_flush(self, snapshot: UnwrittenSnapshot) -> None:
        """Let the next flush write this producer snapshot. Its path counts as unsynced from now on."""
        self._unwritten_snapshots.append(snapshot)

    @property
    def unwritten_snapshots(self) -> list[int]:
        """Offsets of producer snapshots that no flush has written yet."""
        return [each.offset for each in self._unwritten_snapshots if not each.is_written]

    def cancel_snapshots(self, beyond: int) -> None:
        """Cancel and delete the snapshots above `beyond`, where the log is about to end."""
        cancelled = [each for each in self._unwritten_snapshots if each.offset > beyond]
        for snapshot in cancelled:
            snapshot.cancel(self._files)
            self._unwritten_snapshots.remove(snapshot)

    @property
    def are_names_synced(self) -> bool:
        """Whether the files keep their names after a power cut."""
        return self._directory_changes == self._directory_changes_synced

    def is_unsynced(self, path: str) -> bool:
        return path in self._unsynced_paths

    def is_as_settled(self, log_end_offset: int) -> bool:
        """Whether the log is unchanged since a clean shutdown left it complete."""
        return self._settled_offset == log_end_offset

    def plan(self, log_end_offset: int, segments: Segments, epochs: LeaderEpochCache) -> FlushWork | None:
        """Decide what to sync; None if everything is on disk."""
        is_directory_changed = not self.are_names_synced
        snapshots = [each for each in self._unwritten_snapshots if not each.is_written]
        if log_end_offset <= self.recovery_point and not (
            is_directory_changed or epochs.is_dirty or snapshots
        ):
            return None
        return FlushWork(
            self._files,
            self._log_path,
            self._lock,
            target_offset=log_end_offset,
            generation=self.generation,
            data_files=[
                segment.open_file or segment.file_name for segment in segments.since(self.recovery_point)
            ],
            snapshots=snapshots,
            derived_paths=list(self._unsynced_paths),
            epochs_version=epochs.version,
            epochs_content=epochs.render() if epochs.is_dirty else None,
            directory_changes=self._directory_changes,
            is_directory_changed=is_directory_changed,
            is_new=self._directory_changes_synced == 0,
        )

    def plan_epochs(self, epochs: LeaderEpochCache) -> Callable[[], int]:
        """Plan a write of the epoch file alone, without a sync of records; it returns the version."""
        version, content = epochs.version, epochs.render()

        def write() -> int:
            with self._lock:
                self._log_path.replace(self._files, LEADER_EPOCHS, content)
            return version

        return write

    def replace_epochs(self, content: bytes) -> None:
        """Write the epoch file and sync its name, now. A flush in a thread may be writing it: this waits."""
        self._log_path.replace(self._files, LEADER_EPOCHS, content)

    def completed(
        self, work: FlushWork | None, log_end_offset: int, flush_messages: int, now_ms: int
    ) -> None:
        """Advance the recovery point after a flush."""
        if work is not None:
            if work.generation == self.generation:
                self.recovery_point = max(self.recovery_point, work.target_offset)
                synced = set(work.derived_paths)
                self._unsynced_paths = [path for path in self._unsynced_paths if path not in synced]
            self._directory_changes_synced = max(self._directory_changes_synced, work.directory_changes)
            self._release_written_snapshots()
        self.last_flush_ms = now_ms
        self._acknowledgeable = max(self._acknowledgeable, self.recovery_point)
        self.is_due = log_end_offset - self.recovery_point >= flush_messages

    def _release_written_snapshots(self) -> None:
        written = [each for each in self._unwritten_snapshots if each.is_written]
        for snapshot in written:
            snapshot.release()
            self._unwritten_snapshots.remove(snapshot)

    def set_recovery_point(self, offset: int) -> None:
        self.recovery_point = offset

    def cut(self, cut: CutWork) -> None:
        """Record a truncation that is about to happen."""
        self.unsynced_cut = cut
        self._directory_changes += 1  # so that a flush and a close sync it as well

    def cut_synced(self, cut: CutWork | None) -> None:
        if self.unsynced_cut is cut:
            self.unsynced_cut = None

    def truncated(self, offset: int) -> None:
        """Lower the offsets to the new end of the log."""
        self.recovery_point = min(self.recovery_point, offset)
        self._acknowledgeable = min(self._acknowledgeable, offset)
        self.generation += 1

    def restarted(self, offset: int) -> None:
        """Record that the log is empty on disk."""
        self.unsynced_cut = None
        self.truncated(offset)
