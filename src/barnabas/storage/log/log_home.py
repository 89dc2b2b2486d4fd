"""Where a log is. Its directory gets another name when the log is deleted or moved, while other threads may
be writing to it."""

from __future__ import annotations

from threading import Lock

from barnabas.core.files import Files


class LogHome:
    """The lock is held while the directory is renamed, and while a file in it is replaced by name."""

    __slots__ = ("_lock", "directory")

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._lock = Lock()

    def replace(self, files: Files, name: str, content: bytes) -> None:
        """Call it off the loop; only small files, since a deletion waits for it."""
        with self._lock:
            files.replace(f"{self.directory}/{name}", content)

    def rename_to(self, files: Files, directory: str) -> None:
        with self._lock:
            files.rename(self.directory, directory)
            self.directory = directory
