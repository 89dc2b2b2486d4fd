"""Sparse index: older entries in a file, new entries in a tail in memory.

Indexes are derived from the log, and recovery scans the active segment anyway. So a write of each entry gains
nothing. New entries collect in memory. They go to the file when there are enough of them, when the segment is
closed, or before a flush that moves the recovery point. An idle partition has no open index file and no
memory beyond this object.

Most readers are near the end of the log. A lookup tries the tail first, then the end of the file, which stays
in memory once it was read (the warm section). An older entry is found page by page. The search reads one
entry of each page that the bisection visits, then one page, which stays until another is needed.

Pages are read, not mapped. A page that the disk cannot return is then an ordinary error; a mapping would end
the process (SIGBUS).

Entries are hints without a checksum. So a search compares the entry with the header of the batch that it
leads to (`Segment`).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import ClassVar, Final

from barnabas.core.files import DataFile, Files
from barnabas.storage.files.failures import Reach, reach_of, unless_refused

TAIL_BYTES_MAX = 64 * 1024
"""Maximum size of the tail: the entries of 32 MB of log at Kafka's default interval."""

WARM_BYTES: Final = 8 * 1024
"""Size of the warm section at the end of the file, where most searches end."""

PAGE_BYTES: Final = 4 * 1024
"""Size of one read before the warm section."""


class CorruptIndex(Exception):
    """The index contradicts itself or its segment and must be rebuilt."""


class SparseIndex:
    """Ascending entries of one fixed size. `path` need not exist while the file has no entries."""

    entry: ClassVar[struct.Struct]
    __slots__ = (
        "_base_entries", "_files", "_held", "_is_restarted", "_page", "_page_from", "_tail", "_warm",
        "_warm_from", "base_offset", "path",
    )  # fmt: skip

    def __init__(self, files: Files, path: str, base_offset: int, *, file_bytes: int = 0) -> None:
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._base_entries = file_bytes // self.entry.size
        self._warm = b""
        """Last entries of the file, from number `_warm_from` on; empty until they are read."""
        self._warm_from = 0
        self._page = b""
        """Entries of the file from number `_page_from` on."""
        self._page_from = 0
        self._held: DataFile | None = None
        """Open file for a truncation that must not fail."""
        self._tail = bytearray()
        self._is_restarted = False

    def __len__(self) -> int:
        return self._base_entries + len(self._tail) // self.entry.size

    @property
    def size_bytes(self) -> int:
        return self._base_entries * self.entry.size + len(self._tail)

    def is_in_memory(self, slot: int) -> bool:
        """Whether the entry was appended, not read, so that it needs no comparison with its batch."""
        return slot >= self._base_entries

    def at(self, slot: int) -> tuple[int, int]:
        """Raw entry number `slot`."""
        unpack, size = self.entry.unpack_from, self.entry.size
        if slot >= self._base_entries:
            first, second = unpack(self._tail, (slot - self._base_entries) * size)
            return first, second
        self._load()
        if slot >= self._warm_from:
            first, second = unpack(self._warm, (slot - self._warm_from) * size)
            return first, second
        if not 0 <= slot - self._page_from < len(self._page) // size:
            self._read_page(self._file(), slot // (PAGE_BYTES // size))
        first, second = unpack(self._page, (slot - self._page_from) * size)
        return first, second

    def floor(self, target: int, field: int = 0) -> int:
        """Last slot whose `field` is at most `target`; -1 without one."""
        unpack, size = self.entry.unpack_from, self.entry.size
        tail = self._tail
        if tail and unpack(tail, 0)[field] <= target:
            return self._base_entries + self._floor_of(tail, target, field)
        if not self._base_entries:
            return -1
        self._load()
        if unpack(self._warm, 0)[field] <= target:
            return self._warm_from + self._floor_of(self._warm, target, field)
        if not self._warm_from:
            return -1
        page = self._page
        is_first = bool(page) and not self._page_from  # a target below its first entry is in it too
        if not (
            page
            and (is_first or unpack(page, 0)[field] <= target)
            and target < unpack(page, len(page) - size)[field]
        ):
            file, page_bytes = self._file(), PAGE_BYTES // size * size
            pages = range((self._warm_from * size + page_bytes - 1) // page_bytes)
            number = bisect_right(
                pages, target, key=lambda n: unpack(self._read(file, n * page_bytes, size), 0)[field]
            )
            self._read_page(file, max(number - 1, 0))
        return self._page_from + self._floor_of(self._page, target, field)

    def _floor_of(self, entries: bytes | bytearray, target: int, field: int) -> int:
        unpack, size = self.entry.unpack_from, self.entry.size
        count = len(entries) // size
        return bisect_right(range(count), target, key=lambda n: unpack(entries, n * size)[field]) - 1

    def prepare_cut(self) -> None:
        """Open the file for the next `keep`, which must not be refused."""
        if self._base_entries:
            self._held = self._file()

    def keep(self, entries: int) -> None:
        """Drop everything after the first `entries`."""
        held, self._held = self._held, None
        if entries >= self._base_entries:
            del self._tail[(entries - self._base_entries) * self.entry.size :]
            return
        size_bytes = entries * self.entry.size
        try:
            (held or self._file()).truncate(size_bytes)
        except OSError as error:
            if reach_of(error) is not Reach.REQUEST or not self._warm or self._warm_from:
                raise
            kept = self._warm[:size_bytes]
            self.restart()  # closing the segment updates the file
            self._tail += kept
            return
        self._tail.clear()
        self.forget_pages()
        self._base_entries = entries

    def spill(self) -> None:
        """Move the tail into the file."""
        if self._tail:
            file = self._files.open(self.path, create=True)
            position = self._base_entries * self.entry.size
            written = file.write_at(position, self._tail)
            if written != len(self._tail):
                raise OSError(f"short write to {self.path}")
            self._base_entries += written // self.entry.size
            self._tail.clear()
            self.forget_pages()

    def create(self) -> None:
        """Create and complete the file, as Apache Kafka expects it."""
        if self._is_restarted:
            self._replace_file()
        self.spill()
        if not self._base_entries:
            self._files.open(self.path, create=True)

    def restart(self) -> None:
        """Drop every entry, but keep the file until the new entries are complete (`create`)."""
        self._tail.clear()
        self.forget_pages()
        self._base_entries = 0
        self._is_restarted = True

    def _replace_file(self) -> None:
        """Replace the content of the file in one step; leave the file alone if it is the same."""
        content = bytes(self._tail)
        if not self._files.exists(self.path) or self._files.read(self.path) != content:
            self._files.replace(self.path, content)
        self._tail.clear()
        self._base_entries = len(content) // self.entry.size
        # Set last: a refused replacement must be retried, or old entries stay behind the new ones.
        self._is_restarted = False

    def grow_again(self) -> None:
        """Prepare for appends: the segment is active, and recovery does not rely on the file."""
        if self._is_restarted and self._files.exists(self.path):
            self._files.open(self.path).truncate(0)
        self._is_restarted = False

    def reset(self) -> None:
        """Drop every entry, and the content of the file."""
        self.restart()
        self.grow_again()

    def forget_pages(self) -> None:
        """Drop all cached entries of the file."""
        self._warm = self._page = b""
        self._held = None

    def _append(self, first: int, second: int) -> None:
        tail = self._tail
        tail += self.entry.pack(first, second)
        if len(tail) >= TAIL_BYTES_MAX and not self._is_restarted:
            unless_refused(self.spill)

    def _file(self) -> DataFile:
        try:
            return self._held or self._files.open(self.path)
        except FileNotFoundError:
            raise CorruptIndex(f"{self.path} is gone") from None

    def _load(self) -> None:
        """Read the warm section, and compare it with the first entry."""
        if self._warm:
            return
        size, entries = self.entry.size, self._base_entries
        file = self._file()
        warm_from = max(0, entries - WARM_BYTES // size)
        warm = self._read(file, warm_from * size, (entries - warm_from) * size)
        first = self.entry.unpack_from(self._read(file, 0, size), 0)
        self._check(first, self.entry.unpack_from(warm, len(warm) - size))
        self._warm, self._warm_from = warm, warm_from

    def _read_page(self, file: DataFile, number: int) -> None:
        size = self.entry.size
        page_from = number * (PAGE_BYTES // size)
        entries = min(PAGE_BYTES // size, self._warm_from - page_from)
        self._page, self._page_from = self._read(file, page_from * size, entries * size), page_from

    def _read(self, file: DataFile, position: int, length: int) -> bytes:
        found = file.read_at(position, length)
        if len(found) < length:
            raise CorruptIndex(f"{self.path} is shorter than it was")
        return found

    def _check(self, first: tuple[int, ...], last: tuple[int, ...]) -> None:
        """Raise CorruptIndex if the entries of the file are impossible."""
        raise NotImplementedError
