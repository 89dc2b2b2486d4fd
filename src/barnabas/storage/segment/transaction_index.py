"""`.txnindex`: the aborted transactions whose marker lies in this segment.

A reader of committed data gets, with the batches, the list of aborted transactions that
overlap them. Entries are in the order of their markers, and each remembers the last stable
offset when its marker was written: past it no later entry can concern an earlier reader.
Most segments have no aborted transaction and no such file.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from barnabas.core.files import Files
from barnabas.storage.failures import unless_refused
from barnabas.storage.segment.sparse_index import CorruptIndex

VERSION = 0
ENTRY = struct.Struct(">hqqqq")


class AbortedTransactionEntry(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    last_stable_offset: int


class AbortedTransaction(NamedTuple):
    """What a fetch response tells of it."""

    producer_id: int
    first_offset: int


class TransactionIndex:
    __slots__ = ("_entries", "_files", "_is_file_longer", "_unsaved", "base_offset", "path")

    def __init__(self, files: Files, path: str, base_offset: int, *, file_bytes: int = 0) -> None:
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._entries: list[AbortedTransactionEntry] | None = None if file_bytes else []
        self._unsaved = 0
        """So many of the last entries are not in the file yet, because it could not be opened."""
        self._is_file_longer = False
        """It still has entries that were dropped."""

    @property
    def entries(self) -> list[AbortedTransactionEntry]:
        if self._entries is None:
            self._entries = parse_transaction_index(self._files.read(self.path), self.path)
        return self._entries

    def load(self) -> None:
        """Have the entries at hand: the next `append` will need them, and must not fail then."""
        assert self.entries is not None

    def append(self, entry: AbortedTransactionEntry) -> None:
        entries = self.entries
        assert not entries or entries[-1].last_offset < entry.last_offset
        entries.append(entry)
        self._unsaved += 1
        # The log has changed already, so nobody may be refused any more; closing the segment tries again.
        unless_refused(self.save)

    def save(self) -> None:
        """Bring the file up to date."""
        if not (self._unsaved or self._is_file_longer):
            return
        entries = self.entries
        saved = len(entries) - self._unsaved
        content = b"".join(ENTRY.pack(VERSION, *entry) for entry in entries[saved:])
        file = self._files.open(self.path, create=True)
        if self._is_file_longer:
            file.truncate(saved * ENTRY.size)
        if content and file.write_at(saved * ENTRY.size, content) != len(content):
            raise OSError(f"short write to {self.path}")
        self._unsaved = 0
        self._is_file_longer = False

    def collect(self, fetch_offset: int, upper_offset: int, into: list[AbortedTransaction]) -> bool:
        """Add those that overlap `[fetch_offset, upper_offset)`; True when no later segment can."""
        entries = self.entries
        start = bisect_left(entries, fetch_offset, key=lambda entry: entry.last_offset)
        for entry in entries[start:]:
            if entry.first_offset < upper_offset:
                into.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper_offset:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at `offset` or beyond."""
        kept = bisect_left(self.entries, offset, key=lambda entry: entry.last_offset)
        if kept < len(self.entries):
            saved = len(self.entries) - self._unsaved
            self._unsaved = max(0, kept - saved)
            self._is_file_longer = self._is_file_longer or kept < saved
            del self.entries[kept:]
            unless_refused(self.save)

    def check(self) -> None:
        """Raise CorruptIndex when the entries cannot be right."""
        last = self.base_offset - 1
        for entry in self.entries:
            if entry.last_offset <= last or not 0 <= entry.first_offset <= entry.last_offset:
                raise CorruptIndex(f"{self.path}: {entry} is out of place")
            last = entry.last_offset

    def reset(self) -> None:
        self._entries = []
        self._unsaved = 0
        self._is_file_longer = False
        if self._files.exists(self.path):
            self._files.open(self.path).truncate(0)


def parse_transaction_index(content: bytes, path: str) -> list[AbortedTransactionEntry]:
    if len(content) % ENTRY.size:
        raise CorruptIndex(f"{path}: {len(content)} bytes are not a whole number of entries")
    entries = []
    for version, *fields in ENTRY.iter_unpack(content):
        if version != VERSION:
            raise CorruptIndex(f"{path}: version {version} is unknown")
        entries.append(AbortedTransactionEntry(*fields))
    return entries
