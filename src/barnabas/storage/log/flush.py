"""Forcing a log to disk, cut in two: what to sync is decided on the loop, syncing happens
anywhere.

The order matters. First the records, then what is derived from them, then the epoch file,
then the names in the directory; only when all of this is on disk may the recovery point move,
because recovery will not look behind it again.

Meanwhile the log may be deleted and another one of the same name be made. Files that are open, or
that are only synced, do no harm to that one; the epoch file is written by name, so it is written to
where the log is by then (`LogHome`).

A truncation must be on disk before anything is written in the place of what is gone (`CutWork`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from barnabas.core.files import DataFile, Files
from barnabas.storage.names import LEADER_EPOCHS


@dataclass(slots=True)
class LogHome:
    """Where a log is. Its lock is held while the directory is renamed, and while a file in it is replaced."""

    directory: str
    lock: Lock = field(default_factory=Lock)

    def replace(self, files: Files, name: str, content: bytes) -> None:
        """Call it off the loop; only small files, since a deletion waits for it."""
        with self.lock:
            files.replace(f"{self.directory}/{name}", content)

    def rename_to(self, files: Files, directory: str) -> None:
        with self.lock:
            files.rename(self.directory, directory)
            self.directory = directory


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


@dataclass(slots=True)
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
