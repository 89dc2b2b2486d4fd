"""The few file operations that the embedded store needs, as a seam.

A power cut can be simulated behind it: what was written but not synced may be lost or torn, and a rename
that the directory was not synced after may not have happened.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol

from barnabas.cluster.coordination import StoreLocked


class StoreFile(Protocol):
    """A file that only grows at its end, or is cut."""

    def append(self, data: bytes) -> None: ...
    def truncate(self, length: int) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class StoreDirectory(Protocol):
    def lock(self) -> None:
        """Keep others out until `close`, or raise StoreLocked."""
        ...

    def read(self, name: str) -> bytes | None: ...
    def open(self, name: str) -> StoreFile:
        """For appending; made if missing."""
        ...

    def rename(self, name: str, to: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def sync(self) -> None:
        """Make the names durable."""
        ...

    def close(self) -> None: ...


class OsFile:
    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class OsDirectory:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def lock(self) -> None:
        self._make()
        descriptor = os.open(self._path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise StoreLocked(str(self._path)) from None
        self._lock = descriptor

    def _make(self) -> None:
        """A directory is durable once its parent is synced, and so on upwards."""
        missing = [path for path in (self._path, *self._path.parents) if not path.exists()]
        self._path.mkdir(parents=True, exist_ok=True)
        for path in missing:
            _sync_directory(path.parent)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, name: str) -> StoreFile:
        return OsFile(self._path / name)

    def rename(self, name: str, to: str) -> None:
        (self._path / name).replace(self._path / to)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def sync(self) -> None:
        _sync_directory(self._path)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
