"""Current path of a log. A deletion or a move renames the directory while threads may write to it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from barnabas.core.files import DataFile, Files


class LogPath:
    """Path of a log, with a lock that is held during a rename and during a write by name."""

    __slots__ = ("_lock", "directory")

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._lock = Lock()

    def replace(self, files: Files, name: str, content: bytes) -> None:
        """Replace a small file, in a thread. A deletion of the log waits for it."""
        with self._lock:
            files.replace(f"{self.directory}/{name}", content)

    def open(self, files: Files, name: str, *, unless: Callable[[], bool]) -> DataFile | None:
        """Open or create the file; None if `unless`, called under the lock, returns True.

        Later writes go to this file even if the directory is renamed."""
        with self._lock:
            return None if unless() else files.open(f"{self.directory}/{name}", create=True)

    def sync(self, files: Files, name: str) -> None:
        """Flush a file that may be closed. A deleted one needs no flush."""
        with self._lock:
            try:
                file = files.open(f"{self.directory}/{name}")
            except FileNotFoundError:
                return
        file.sync()

    def unlink(self, files: Files, name: str) -> None:
        with self._lock:
            files.unlink(f"{self.directory}/{name}")

    def rename_to(self, files: Files, directory: str) -> None:
        with self._lock:
            files.rename(self.directory, directory)
            self.directory = directory
