"""In-memory file system that loses power.

Nothing is durable before a sync: the bytes of a file by `sync` of the file, its name by `sync_directory`. At
a power cut each page written since may have reached the disk, or not, or up to some byte of it. The size may
be the old one, the new one or one between. A prefix of the changes to a directory has happened. A seed
decides.

A test can inject faults: `before` is called with every operation and may raise, and `write_limit_bytes` makes
the next write a short one.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import DataFile, Entry, Held, RealFile

PAGE_BYTES = 512
"""Small, so that even small tests tear pages apart."""


class _Content:
    """The bytes of one file: as programs see them, and as the disk has them."""

    def __init__(self) -> None:
        self.now = bytearray()
        self.durable = b""
        self.written_pages: set[int] = set()

    def touch(self, start: int, end: int) -> None:
        if end > start:
            self.written_pages.update(range(start // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1))

    def sync(self) -> None:
        self.durable = bytes(self.now)
        self.written_pages.clear()

    def lose_power(self, chance: random.Random) -> None:
        now, old = bytes(self.now), self.durable
        size = chance.choice(
            [len(old), len(now), chance.randint(min(len(old), len(now)), max(len(old), len(now)))]
        )
        after = bytearray(old[:size].ljust(size, b"\0"))
        for page in sorted(self.written_pages):
            start = page * PAGE_BYTES
            end = min(start + PAGE_BYTES, size, len(now))
            fate = chance.random()
            if fate < 0.3:
                end = chance.randint(start, end) if end > start else start
            elif fate < 0.5:
                end = start
            if end > start:
                after[start:end] = now[start:end]
        self.now = after
        self.sync()


_Change = Callable[[dict[str, _Content], set[str]], None]
"""To the files and directories there are; one of a directory waits for its sync."""


class _MemoryFile:
    def __init__(self, files: PowerCutFiles, path: str, content: _Content) -> None:
        self._files = files
        self._path = path
        self._content = content
        self._life = files.life
        self._shadow: RealFile | None = None

    def fileno(self) -> int:
        """For `sendfile`: a private real file with the current content."""
        self._files.check("read", self._path, self._life)
        if self._shadow is None:
            descriptor, name = tempfile.mkstemp()
            Path(name).unlink()
            self._shadow = RealFile(descriptor)
        descriptor = self._shadow.fileno()
        os.pwrite(descriptor, self._content.now, 0)
        os.ftruncate(descriptor, len(self._content.now))
        return descriptor

    def read_at(self, position: int, length: int) -> bytes:
        self._files.check("read", self._path, self._life)
        return bytes(self._content.now[position : position + length])

    def read_now(self, position: int, length: int) -> bytes:
        return self.read_at(position, length)

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> int:
        self._files.check("write", self._path, self._life)
        taken = bytes(data)
        limit, self._files.write_limit_bytes = self._files.write_limit_bytes, None
        if limit is not None:
            taken = taken[:limit]
        now = self._content.now
        if len(now) < position:
            now.extend(bytes(position - len(now)))
        now[position : position + len(taken)] = taken
        self._content.touch(position, position + len(taken))
        return len(taken)

    def truncate(self, size_bytes: int) -> None:
        self._files.check("truncate", self._path, self._life)
        now = self._content.now
        if len(now) < size_bytes:
            self._content.touch(len(now), size_bytes)
            now.extend(bytes(size_bytes - len(now)))
        else:
            self._content.touch(size_bytes, len(now))
            del now[size_bytes:]

    def sync(self) -> None:
        self._files.check("sync", self._path, self._life)
        self._content.sync()


class _HeldLock:
    def __init__(self, files: PowerCutFiles, path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        self._files.locks.discard(self._path)


class PowerCutFiles:
    """Implements `core.files.Files`."""

    def __init__(self, seed: int = 0) -> None:
        self.before: Callable[[str, str], None] | None = None
        self.write_limit_bytes: int | None = None
        self.life = 0
        """Grows with each power cut; files opened before it are dead."""
        self.locks: set[str] = set()
        self._chance = random.Random(seed)
        self._files: dict[str, _Content] = {}
        self._directories: set[str] = {""}
        self._durable_files: dict[str, _Content] = {}
        self._durable_directories: set[str] = {""}
        self._pending: dict[str, list[_Change]] = {}

    def cut_power(self) -> None:
        """Everything stops; what was not synced is lost, in part, at random."""
        self.life += 1
        self.locks.clear()
        for changes in self._pending.values():
            for change in changes[: self._chance.randint(0, len(changes))]:
                change(self._durable_files, self._durable_directories)
        self._pending.clear()
        self._durable_directories = {
            path for path in self._durable_directories if self._is_reached(path, self._durable_directories)
        }
        self._durable_files = {
            path: content
            for path, content in self._durable_files.items()
            if _parent(path) in self._durable_directories
        }
        for content in self._durable_files.values():
            content.lose_power(self._chance)
        self._files = dict(self._durable_files)
        self._directories = set(self._durable_directories)

    @staticmethod
    def _is_reached(path: str, directories: set[str]) -> bool:
        """Whether it is there, and everything above it."""
        while path in directories:
            if not path:
                return True
            path = _parent(path)
        return False

    def corrupt(self, path: str, position: int) -> None:
        """A sector goes bad: one bit of a byte changes, on the disk and for every reader."""
        content = self._content(path)
        content.now[position] ^= 0x10
        if position < len(content.durable):
            durable = bytearray(content.durable)
            durable[position] ^= 0x10
            content.durable = bytes(durable)

    def check(self, operation: str, path: str, life: int | None = None) -> None:
        if life is not None and life != self.life:
            raise OSError(f"{path} was opened before the power cut")
        if self.before is not None:
            self.before(operation, path)

    # -- Files --------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> DataFile:
        self.check("open", path)
        if path not in self._files:
            if not create:
                raise FileNotFoundError(path)
            self._create(path)
        return _MemoryFile(self, path, self._files[path])

    def read(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._content(path).now)

    def write(self, path: str, content: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.write_at(0, content)

    def replace(self, path: str, content: bytes) -> None:
        temporary = f"{path}.tmp"
        self.write(temporary, content)
        self.sync(temporary)
        self.rename(temporary, path)
        self.sync_directory(_parent(path))

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def modified_ms(self, path: str) -> int:
        self._content(path)
        return 0

    def list(self, directory: str) -> list[Entry]:
        self.check("list", directory)
        if directory not in self._directories:
            raise FileNotFoundError(directory)
        files = [
            Entry(path.rpartition("/")[2], len(content.now), False)
            for path, content in list(self._files.items())
            if _parent(path) == directory
        ]
        directories = [
            Entry(path.rpartition("/")[2], 0, True)
            for path in sorted(self._directories)
            if path and _parent(path) == directory
        ]
        return [*files, *directories]

    def sync(self, path: str) -> None:
        self.check("sync", path)
        self._content(path).sync()

    def sync_directory(self, directory: str) -> None:
        self.check("sync_directory", directory)
        self._make_durable(directory)

    def _make_durable(self, directory: str) -> None:
        for change in self._pending.pop(directory, []):
            change(self._durable_files, self._durable_directories)

    def rename(self, old: str, new: str) -> None:
        self.check("rename", old)
        if old not in self._files and old not in self._directories:
            raise FileNotFoundError(old)

        if old in self._files:
            self._change(_parent(new), lambda files, _: _move_file(files, old, new))
        else:
            for path in [p for p in self._pending if p == old or p.startswith(f"{old}/")]:
                self._make_durable(path)  # a moved directory takes its entries along
            self._change(_parent(new), lambda files, directories: _move_tree(files, directories, old, new))

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        if path in self._files:

            def apply(files: dict[str, _Content], directories: set[str]) -> None:
                files.pop(path, None)

            self._change(_parent(path), apply)

    def make_directory(self, path: str) -> bool:
        self.check("make_directory", path)
        if path in self._directories:
            return False
        if _parent(path) not in self._directories:
            self.make_directory(_parent(path))
        self._change(_parent(path), lambda _, directories: directories.add(path))
        return True

    def make_lasting_directory(self, path: str) -> None:
        above = _parent(path)
        if above not in self._directories:
            self.make_lasting_directory(above)
        if self.make_directory(path):
            self.sync_directory(above)

    def remove_tree(self, path: str) -> None:
        self.check("remove_tree", path)

        def apply(files: dict[str, _Content], directories: set[str]) -> None:
            for name in [p for p in files if p.startswith(f"{path}/")]:
                del files[name]
            for name in [p for p in sorted(directories) if p == path or p.startswith(f"{path}/")]:
                directories.discard(name)

        self._change(_parent(path), apply)

    def lock(self, path: str) -> Held:
        if path in self.locks:
            raise KafkaStorageError(f"another broker already uses the log directory {_parent(path)}")
        self.open(path, create=True)
        self.locks.add(path)
        return _HeldLock(self, path)

    # -- inside -------------------------------------------------------------------------------

    def _content(self, path: str) -> _Content:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def _create(self, path: str) -> None:
        if _parent(path) not in self._directories:
            raise FileNotFoundError(_parent(path))
        content = _Content()

        def apply(files: dict[str, _Content], directories: set[str]) -> None:
            files[path] = content

        self._change(_parent(path), apply)

    def _change(self, directory: str, apply: _Change) -> None:
        apply(self._files, self._directories)
        self._pending.setdefault(directory, []).append(apply)


def _move_file(files: dict[str, _Content], old: str, new: str) -> None:
    content = files.pop(old, None)
    if content is not None:
        files[new] = content


def _move_tree(files: dict[str, _Content], directories: set[str], old: str, new: str) -> None:
    for path in [p for p in files if p.startswith(f"{old}/")]:
        files[new + path[len(old) :]] = files.pop(path)
    for path in [p for p in sorted(directories) if p == old or p.startswith(f"{old}/")]:
        directories.discard(path)
        directories.add(new + path[len(old) :])


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
