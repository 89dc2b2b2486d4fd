"""File system interface, and its implementation on the operating system.

All disk access of the broker goes through `Files`, so a test can run the log on a file system that loses
power. Paths are plain strings: a log builds a hundred thousand of them at start-up, and only this module
passes them to the operating system.

Durability: `write_at`, `truncate`, `rename` and `unlink` are durable only after `sync` of the file (its
bytes) or `sync_directory` (its name). `replace` is the one safe way to change a small file: temporary file,
sync, rename, directory sync.
"""

from __future__ import annotations

# ruff: noqa: PTH100, PTH102, PTH103, PTH104, PTH105, PTH108, PTH110, PTH112, PTH116, PTH120, PTH123, SIM105
import errno
import fcntl
import os
import shutil
import stat
from typing import NamedTuple, Protocol

from barnabas.core.errors import KafkaStorageError
from barnabas.core.regions import OpenFile


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    size_bytes: int
    is_directory: bool


class DataFile(OpenFile, Protocol):
    """A file open for reads and writes at positions; it closes with its last reference."""

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> int:
        """Write `data` in one system call; returns how many bytes the system took."""
        ...

    def truncate(self, size_bytes: int) -> None: ...
    def sync(self) -> None: ...


class Held(Protocol):
    """A lock that this process holds."""

    def release(self) -> None: ...


class Files(Protocol):
    def open(self, path: str, *, create: bool = False) -> DataFile: ...
    def read(self, path: str) -> bytes: ...
    def write(self, path: str, content: bytes) -> None:
        """Give the file exactly this content; not durable."""
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Change the content atomically: a crash leaves the old or the new content. Durable on return."""
        ...

    def exists(self, path: str) -> bool: ...
    def modified_ms(self, path: str) -> int: ...
    def list(self, directory: str) -> list[Entry]: ...
    def sync(self, path: str) -> None: ...
    def sync_directory(self, directory: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None:
        """Remove the file; a missing file is no error."""
        ...

    def make_directory(self, path: str) -> bool:
        """Make the directory and its parents; False if it exists."""
        ...

    def make_lasting_directory(self, path: str) -> None:
        """Make the directory durably. Without the sync of its name a power cut takes the directory and all
        files in it."""
        ...

    def remove_tree(self, path: str) -> None: ...
    def lock(self, path: str) -> Held: ...


_NOT_WAITING: int = getattr(os, "RWF_NOWAIT", 0)
"""`preadv2` flag: read only from the page cache. 0 where the system has no such flag."""
_CANNOT_SAY = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Error of a file system without that flag."""


class RealFile:
    """A descriptor that closes with its last reference, so a region keeps its file open."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def read_at(self, position: int, length: int) -> bytes:
        found = os.pread(self._fd, length, position)
        if len(found) == length or not found:
            return found
        parts = [found]
        position += len(found)
        missing = length - len(found)
        while missing > 0 and (found := os.pread(self._fd, missing, position)):
            parts.append(found)
            position += len(found)
            missing -= len(found)
        return b"".join(parts)

    def read_now(self, position: int, length: int) -> bytes | bytearray | None:
        if not _NOT_WAITING:
            return self.read_at(position, length)
        found = bytearray(length)
        try:
            count = os.preadv(self._fd, [found], position, _NOT_WAITING)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _CANNOT_SAY:
                raise
            return self.read_at(position, length)
        if count == length:
            return found
        return None if position + count < os.fstat(self._fd).st_size else found[:count]

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> int:
        return os.pwrite(self._fd, data, position)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def sync(self) -> None:
        os.fsync(self._fd)

    def __del__(self) -> None:
        os.close(self._fd)


_locked: set[str] = set()
"""Paths that this process has locked. The lock is the one that Apache Kafka takes, and excludes other
processes only. It is lost when any descriptor of the file closes, so a second attempt must not open the
file."""


class _HeldLock:
    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        _locked.add(path)

    def release(self) -> None:
        os.close(self._fd)
        _locked.discard(self._path)


def _in_use(path: str) -> KafkaStorageError:
    return KafkaStorageError(f"another broker already uses the log directory {os.path.dirname(path)}")


class RealFiles:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False) -> DataFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(path, flags, 0o644))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, content: bytes) -> None:
        # Each new partition has such a file: a buffer would cost more than the rest.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            written = os.write(fd, content)
            while written < len(content):
                written += os.write(fd, content[written:])
        finally:
            os.close(fd)

    def replace(self, path: str, content: bytes) -> None:
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, directory: str) -> list[Entry]:
        entries = []
        with os.scandir(directory) as found:
            for entry in found:
                try:
                    is_directory = entry.is_dir()
                    size_bytes = 0 if is_directory else entry.stat().st_size
                except FileNotFoundError:
                    continue  # a background thread deletes files while this listing runs
                entries.append(Entry(entry.name, size_bytes, is_directory))
        return entries

    def sync(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_directory(self, directory: str) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def make_directory(self, path: str) -> bool:
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return False
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)
        return True

    def make_lasting_directory(self, path: str) -> None:
        above = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(above):
            self.make_lasting_directory(above)
        if self.make_directory(path):
            self.sync_directory(above)

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass

    def lock(self, path: str) -> Held:
        real_path = os.path.realpath(path)
        if real_path in _locked:
            raise _in_use(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise _in_use(path) from None
            raise
        return _HeldLock(fd, real_path)


def read_regular_file(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """Read a file that a setting names, up to `bytes_max`. OSError for a pipe or a device: a read could wait
    forever."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with open(fd, "rb", closefd=False) as file:
            return file.read(bytes_max)
    finally:
        os.close(fd)
