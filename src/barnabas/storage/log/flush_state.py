"""What of a log is on disk: everything below the recovery point.

What is above may be lost, so while the topic asks for a flush (`flush.messages`) it is not acknowledged: the
durable end holds back. A flush is cut in two: what to sync is decided on the loop (`FlushState.plan`),
syncing happens anywhere (`FlushWork`).

The order matters. First the records, then what is derived from them, then the epoch file,
then the names in the directory; only when all of this is on disk may the recovery point move,
because recovery will not look behind it again.

Meanwhile the log may be deleted and another one of the same name be made. Files that are open, or
that are only synced, do no harm to that one; the epoch file is written by name, so it is written to
where the log is by then (`LogHome`).

A truncation must be on disk before anything is written in the place of what is gone (`CutWork`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

from barnabas.core.files import DataFile, Files
from barnabas.storage.log.leader_epoch_cache import LeaderEpochCache
from barnabas.storage.log.log_home import LogHome
from barnabas.storage.log.segments import Segments
from barnabas.storage.names import LEADER_EPOCHS


@dataclass(slots=True)
class FlushWork:
    """Call it off the loop, then hand it back to `Log.flush_completed`."""

    files: Files
    home: LogHome
    lock: Lock
    """The log's: two flushes of one log do not overlap."""
    target_offset: int
    """Everything below is durable afterwards."""
    generation: int
    """Of the log, when this was planned: a truncation in between voids the outcome."""
    data_files: list[DataFile]
    derived_paths: list[str]
    epochs_version: int
    epochs_content: bytes | None
    directory_changes: int
    is_directory_changed: bool
    is_new: bool
    """The directory itself may not be on disk yet."""

    def __call__(self) -> FlushWork:
        with self.lock:
            for file in self.data_files:
                file.sync()
            for path in self.derived_paths:
                try:
                    self.files.sync(path)
                except FileNotFoundError:
                    continue  # retention was faster; what is gone needs no sync
            if self.epochs_content is not None:
                self.home.replace(self.files, LEADER_EPOCHS, self.epochs_content)
            elif self.is_directory_changed:
                self.files.sync_directory(self.home.directory)
            if self.is_new:
                self.files.sync_directory(self.home.directory.rpartition("/")[0])
        return self


@dataclass(frozen=True, slots=True)
class CutWork:
    """Making a truncation last: call it off the loop, then hand it back to `Log.cut_synced`."""

    files: Files
    file: DataFile
    directory: str | None
    """Where segments have gone, too."""

    def __call__(self) -> None:
        if self.directory is not None:
            # Were the old names to come back after a power cut, offsets would be there twice.
            self.files.sync_directory(self.directory)
        # Nor may old bytes come back behind the new ones that will be written here.
        self.file.sync()


class FlushState:
    def __init__(
        self,
        files: Files,
        home: LogHome,
        *,
        recovery_point: int,
        log_end_offset: int,
        now_ms: int,
        unsynced_paths: Iterable[str] = (),
        is_settled: bool = False,
    ) -> None:
        self._files = files
        self._home = home
        self.recovery_point = recovery_point
        """Everything below is on disk."""
        self.is_due = False
        """`flush.messages` is reached: appends wait for the disk."""
        self.last_flush_ms = now_ms
        self.generation = 0
        """Grows with each truncation: what was decided before one may not hold after it."""
        self.unsynced_cut: CutWork | None = None
        """A truncation that may not be on disk yet."""
        self._acknowledgeable = log_end_offset
        """While a flush is due: what was acknowledgeable before it became so."""
        self._lock = Lock()
        self._directory_changes = 1
        self._directory_changes_synced = 1 if is_settled else 0
        self._settled_offset = log_end_offset if is_settled else -1
        """The log end offset at which a clean shutdown left everything complete on disk."""
        self._unsynced_paths = list(unsynced_paths)
        """Derived files that the next flush must sync."""

    def durable_end_offset(self, log_end_offset: int) -> int:
        """What may be acknowledged: the end of the log, or what is on disk while a flush is due."""
        return max(self.recovery_point, self._acknowledgeable) if self.is_due else log_end_offset

    def became_due(self, acknowledgeable: int) -> None:
        if not self.is_due:
            self.is_due = True
            self._acknowledgeable = acknowledgeable

    def wrote(self, path: str) -> None:
        """A small file was written that the next flush must sync."""
        self._unsynced_paths.append(path)

    def names_changed(self, unsynced_paths: Iterable[str] = ()) -> None:
        """Files have come or gone, or have other names; of those that came, some must be synced as well."""
        self._directory_changes += 1
        self._unsynced_paths.extend(unsynced_paths)

    @property
    def are_names_synced(self) -> bool:
        """Whether a power cut leaves the files under the names that they have."""
        return self._directory_changes == self._directory_changes_synced

    def is_unsynced(self, path: str) -> bool:
        return path in self._unsynced_paths

    def is_as_settled(self, log_end_offset: int) -> bool:
        """Whether nothing was appended since a clean shutdown left everything complete."""
        return self._settled_offset == log_end_offset

    def plan(self, log_end_offset: int, segments: Segments, epochs: LeaderEpochCache) -> FlushWork | None:
        """What must be synced; None when everything is on disk already."""
        is_directory_changed = not self.are_names_synced
        if log_end_offset <= self.recovery_point and not (is_directory_changed or epochs.is_dirty):
            return None
        return FlushWork(
            self._files,
            self._home,
            self._lock,
            target_offset=log_end_offset,
            generation=self.generation,
            data_files=[segment.file for segment in segments.since(self.recovery_point)],
            derived_paths=list(self._unsynced_paths),
            epochs_version=epochs.version,
            epochs_content=epochs.render() if epochs.is_dirty else None,
            directory_changes=self._directory_changes,
            is_directory_changed=is_directory_changed,
            is_new=self._directory_changes_synced == 0,
        )

    def plan_epochs(self, epochs: LeaderEpochCache) -> Callable[[], int]:
        """Write the epoch file alone, without forcing records to disk; returns the version that it has."""
        version, content = epochs.version, epochs.render()

        def write() -> int:
            with self._lock:
                self._home.replace(self._files, LEADER_EPOCHS, content)
            return version

        return write

    def completed(
        self, work: FlushWork | None, log_end_offset: int, flush_messages: int, now_ms: int
    ) -> None:
        """The work is done: the recovery point moves, and acknowledgements may leave."""
        if work is not None:
            if work.generation == self.generation:
                self.recovery_point = max(self.recovery_point, work.target_offset)
                synced = set(work.derived_paths)
                self._unsynced_paths = [path for path in self._unsynced_paths if path not in synced]
            self._directory_changes_synced = max(self._directory_changes_synced, work.directory_changes)
        self.last_flush_ms = now_ms
        self._acknowledgeable = max(self._acknowledgeable, self.recovery_point)
        self.is_due = log_end_offset - self.recovery_point >= flush_messages

    def set_recovery_point(self, offset: int) -> None:
        self.recovery_point = offset

    def cut(self, cut: CutWork) -> None:
        """The log is about to be cut."""
        self.unsynced_cut = cut
        self._directory_changes += 1  # so that a flush, and the end, sync it as well

    def cut_synced(self, cut: CutWork | None) -> None:
        if self.unsynced_cut is cut:
            self.unsynced_cut = None

    def truncated(self, offset: int) -> None:
        """The log ends at `offset`."""
        self.recovery_point = min(self.recovery_point, offset)
        self._acknowledgeable = min(self._acknowledgeable, offset)
        self.generation += 1

    def restarted(self, offset: int) -> None:
        """The log is empty, and that is on disk."""
        self.unsynced_cut = None
        self.truncated(offset)
