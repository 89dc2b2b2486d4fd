"""A sparse index: a mapped file for what is settled, a tail in memory for what is fresh.

Indexes are derived from the log, and a segment that was still being written is scanned after
a crash anyway. So nothing is gained by putting each entry on disk at once: fresh entries
collect in memory and go to the file when there are enough of them, when the segment is
closed, or before a flush that moves the recovery point. An idle partition has no index file
open, none mapped, and no memory beyond this object.

Readers near the end of the log are the common case: a lookup tries the tail first, and only
what is older goes to the mapped file. There, too, the end comes first: bisecting the whole file would touch
pages of its cold middle, which nobody else reads, and wait for the disk.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import ClassVar

from barnabas.core.files import Files, ReadBuffer
from barnabas.storage.failures import Reach, reach_of, unless_refused

TAIL_BYTES_MAX = 64 * 1024
"""Fresh entries kept in memory before they go to the file: 32 MB of log, as Kafka spaces them."""

WARM_BYTES = 8 * 1024
"""The end of the file, where most searches are: these pages stay in memory while anybody reads there."""


class CorruptIndex(Exception):
    """The index contradicts itself or its segment; it must be rebuilt."""


class SparseIndex:
    """Entries of one fixed size, ascending. `path` need not exist while there is no entry in it."""

    entry: ClassVar[struct.Struct]
    __slots__ = ("_base", "_base_entries", "_files", "_is_restarted", "_tail", "base_offset", "path")

    def __init__(self, files: Files, path: str, base_offset: int, *, file_bytes: int = 0) -> None:
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._base: ReadBuffer | None = None
        self._base_entries = file_bytes // self.entry.size
        self._tail = bytearray()
        self._is_restarted = False

    def __len__(self) -> int:
        return self._base_entries + len(self._tail) // self.entry.size

    @property
    def size_bytes(self) -> int:
        return self._base_entries * self.entry.size + len(self._tail)

    def at(self, slot: int) -> tuple[int, int]:
        """The raw entry number `slot`."""
        if slot < self._base_entries:
            first, second = self.entry.unpack_from(self._mapped(), slot * self.entry.size)
        else:
            first, second = self.entry.unpack_from(self._tail, (slot - self._base_entries) * self.entry.size)
        return first, second

    def floor(self, target: int, field: int = 0) -> int:
        """The last slot whose `field` is at most `target`; -1 when there is none."""
        unpack, size = self.entry.unpack_from, self.entry.size
        tail = self._tail
        if tail and unpack(tail, 0)[field] <= target:
            within = bisect_right(
                range(len(tail) // size), target, key=lambda n: unpack(tail, n * size)[field]
            )
            return self._base_entries + within - 1
        if not self._base_entries:
            return -1
        base, entries = self._mapped(), self._base_entries
        warm = max(0, entries - WARM_BYTES // size)
        is_warm = unpack(base, warm * size)[field] <= target
        low, high = (warm, entries) if is_warm else (0, warm)
        return (
            bisect_right(range(entries), target, low, high, key=lambda n: unpack(base, n * size)[field]) - 1
        )

    def keep(self, entries: int) -> None:
        """Drop everything after the first `entries`."""
        if entries >= self._base_entries:
            del self._tail[(entries - self._base_entries) * self.entry.size :]
            return
        kept = bytes(self._mapped()[: entries * self.entry.size]) if entries else b""
        try:
            self._files.open(self.path).truncate(len(kept))
        except OSError as error:
            if reach_of(error) is not Reach.REQUEST:
                raise
            self.restart()  # the file is brought up to date when the segment is closed
            self._tail += kept
            return
        self._tail.clear()
        self._base = None
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
            self._base = None

    def create(self) -> None:
        """Make the file exist and complete, so that other brokers find the segment in order."""
        if self._is_restarted:
            self._replace_file()
        self.spill()
        if not self._base_entries:
            self._files.open(self.path, create=True)

    def restart(self) -> None:
        """Forget every entry, but leave the file as it is until the new ones are complete (`create`)."""
        self._tail.clear()
        self._base = None
        self._base_entries = 0
        self._is_restarted = True

    def _replace_file(self) -> None:
        """From the old content, or none, to the new in one step, and in no step where they are the same."""
        content = bytes(self._tail)
        if not self._files.exists(self.path) or self._files.read(self.path) != content:
            self._files.replace(self.path, content)
        self._tail.clear()
        self._base_entries = len(content) // self.entry.size
        # Not before: a replacement that was refused is still to be done, or old entries stay behind ours.
        self._is_restarted = False

    def grow_again(self) -> None:
        """The segment is the active one after all: nothing relies on what the file holds."""
        if self._is_restarted and self._files.exists(self.path):
            self._files.open(self.path).truncate(0)
        self._is_restarted = False

    def reset(self) -> None:
        """Forget every entry, and whatever the file holds."""
        self.restart()
        self.grow_again()

    def unmap(self) -> None:
        self._base = None

    def _append(self, first: int, second: int) -> None:
        tail = self._tail
        tail += self.entry.pack(first, second)
        if len(tail) >= TAIL_BYTES_MAX and not self._is_restarted:
            unless_refused(self.spill)

    def _mapped(self) -> ReadBuffer:
        base = self._base
        if base is None:
            base = self._files.map(self.path)
            if len(base) < self._base_entries * self.entry.size:
                raise CorruptIndex(f"{self.path} is shorter than it was")
            self._check(base, self._base_entries)
            self._base = base
        return base

    def _check(self, base: ReadBuffer, entries: int) -> None:
        """Raise CorruptIndex when the mapped entries cannot be right."""
        raise NotImplementedError
