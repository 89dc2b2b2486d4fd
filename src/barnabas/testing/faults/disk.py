"""The disk of a test's broker, which can be full, broken or slow.

    broker.disk.fail("ENOSPC", under="orders-0")   # writes of that log fail
    broker.disk.stall()                            # writes and syncs wait
    broker.disk.heal()

Everything else is real: the files are those of the operating system. Data in a temporary directory is not
synced. No power cut happens to it, and a sync of each write is most of the time that a small test takes.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import Final

from barnabas.core.files import DataFile, RealFiles

_STALL_S_MAX: Final = 60.0
"""A test that forgets to heal the disk ends all the same."""


class Disk(RealFiles):
    """Files of a test's broker. A fault applies to writes and syncs of paths that contain its `under`; there
    may be several."""

    def __init__(self, *, is_lasting: bool = True) -> None:
        self._is_lasting = is_lasting
        self._flowing = threading.Event()
        self._flowing.set()
        self._errors: dict[str, int] = {}
        self._stalled: tuple[str, ...] = ()
        """Parts of paths, as the test gave them; the empty one is in every path."""
        self._is_dead = False
        self.refused = 0
        """Writes and syncs that failed."""

    def fail(self, name: str = "EIO", *, under: str = "") -> None:
        """Let writes fail with an error of the operating system: "ENOSPC", "EIO", "EROFS", …"""
        number = getattr(errno, name, None)
        if not isinstance(number, int):
            raise ValueError(f"there is no error {name!r}: write it like ENOSPC or EIO")
        self._errors = {**self._errors, under: number}

    def stall(self, *, under: str = "") -> None:
        """Let writes wait until `heal`, for a minute at most."""
        self._stalled = (*self._stalled, under)
        self._flowing.clear()

    def heal(self) -> None:
        """End all faults."""
        self._errors, self._stalled = {}, ()
        self._flowing.set()

    def die(self) -> None:
        """Change no file any more: the process that wrote them is gone. Nothing heals this."""
        self._is_dead = True
        self._flowing.set()

    def check(self, path: str) -> None:
        """Wait or raise OSError, as the fault says."""
        self._check_life(path)
        if any(under in path for under in self._stalled):
            self._flowing.wait(_STALL_S_MAX)
            self._check_life(path)
        number = next((number for under, number in self._errors.items() if under in path), 0)
        if number:
            self.refused += 1
            raise OSError(number, os.strerror(number), path)

    def _check_life(self, path: str) -> None:
        if self._is_dead:
            raise OSError(errno.EIO, "the broker was killed", path)

    def open(self, path: str, *, create: bool = False) -> DataFile:
        if create:
            self.check(path)
        return _FaultyFile(super().open(path, create=create), path, self)

    def write(self, path: str, content: bytes) -> None:
        self.check(path)
        super().write(path, content)

    def replace(self, path: str, content: bytes) -> None:
        self.check(path)
        if self._is_lasting:
            super().replace(path, content)
        else:
            super().write(f"{path}.tmp", content)
            super().rename(f"{path}.tmp", path)

    def sync(self, path: str) -> None:
        self.check(path)
        if self._is_lasting:
            super().sync(path)

    def sync_directory(self, directory: str) -> None:
        if self._is_lasting:
            super().sync_directory(directory)

    def sync_file(self, file: DataFile, path: str) -> None:
        self.check(path)
        if self._is_lasting:
            file.sync()

    def rename(self, old: str, new: str) -> None:
        self._check_life(old)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._check_life(path)
        super().unlink(path)

    def make_directory(self, path: str) -> bool:
        self._check_life(path)
        return super().make_directory(path)

    def remove_tree(self, path: str) -> None:
        self._check_life(path)
        super().remove_tree(path)


class _FaultyFile:
    __slots__ = ("_disk", "_file", "_path", "fileno", "read_at", "read_now")

    def __init__(self, file: DataFile, path: str, disk: Disk) -> None:
        self._file = file
        self._path = path
        self._disk = disk
        self.fileno = file.fileno
        self.read_at = file.read_at
        self.read_now = file.read_now

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> int:
        self._disk.check(self._path)
        return self._file.write_at(position, data)

    def truncate(self, size_bytes: int) -> None:
        self._disk.check(self._path)
        self._file.truncate(size_bytes)

    def sync(self) -> None:
        self._disk.sync_file(self._file, self._path)
