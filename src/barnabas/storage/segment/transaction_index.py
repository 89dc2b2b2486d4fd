"""Transaction index (`.txnindex`): the aborted transactions whose marker is in this segment.

A fetch with `read_committed` returns the batches and the aborted transactions that overlap them. Entries are
in the order of their markers. Each has the last stable offset at the time of its marker: a later entry cannot
concern a reader below that offset. Most segments have no aborted transaction and no such file.

Kafka's format has no checksum. A changed bit would give aborted records to consumers with `read_committed`.
So a closed segment has the checksum of its index in `.txnindex.crc`, and a start compares the two. An index
without one comes from Apache Kafka: it is compared with the markers in the log, once
(`segment_recovery.compare_with_markers`). An index that does not match is derived from the log again.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from barnabas.core.files import Files
from barnabas.records.checksum import crc32c
from barnabas.storage.files.failures import unless_refused
from barnabas.storage.segment.sparse_index import CorruptIndex

VERSION = 0
ENTRY = struct.Struct(">hqqqq")
CHECKSUM = struct.Struct(">hI")
"""Version and CRC-32C of the index."""


class AbortedTransactionEntry(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    last_stable_offset: int


class AbortedTransaction(NamedTuple):
    """Aborted transaction in a fetch response."""

    producer_id: int
    first_offset: int


class TransactionIndex:
    __slots__ = (
        "_crc",
        "_entries",
        "_files",
        "_is_file_longer",
        "_is_restarted",
        "_unsaved",
        "base_offset",
        "checksum_path",
        "has_checksum",
        "path",
    )

    def __init__(
        self,
        files: Files,
        path: str,
        base_offset: int,
        *,
        file_bytes: int = 0,
        checksum_path: str = "",
        has_checksum: bool = False,
    ) -> None:
        self.path = path
        self.checksum_path = checksum_path
        self.has_checksum = has_checksum
        """Whether the checksum file exists. In a growing segment it covers the state at the last close."""
        self.base_offset = base_offset
        self._files = files
        self._entries: list[AbortedTransactionEntry] | None = None if file_bytes else []
        self._crc: int | None = None if file_bytes else 0
        """Running checksum of the entries, if known, so that closing a segment reads none of them again."""
        self._unsaved = 0
        """Number of last entries that are not in the file yet, because it could not be opened."""
        self._is_file_longer = False
        """Whether the file still has dropped entries."""
        self._is_restarted = False
        """Whether the entries are being derived again; the file is kept until they are complete."""

    @property
    def size_bytes(self) -> int:
        return len(self.entries) * ENTRY.size

    @property
    def entries(self) -> list[AbortedTransactionEntry]:
        if self._entries is None:
            self._entries = parse_transaction_index(self._files.read(self.path), self.path)
        return self._entries

    def load(self) -> None:
        """Read the entries before an `append`, which must not fail."""
        assert self.entries is not None

    def append(self, entry: AbortedTransactionEntry) -> None:
        entries = self.entries
        assert not entries or entries[-1].last_offset < entry.last_offset
        entries.append(entry)
        self._unsaved += 1
        if self._crc is not None:
            self._crc = crc32c(ENTRY.pack(VERSION, *entry), self._crc)
        if self._is_restarted:
            return
        # The log has changed already, so the append cannot be refused. Closing the segment tries again.
        unless_refused(self.save)

    def save(self) -> None:
        """Write the missing entries to the file."""
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
        """Add transactions that overlap `[fetch_offset, upper_offset)`; True if no later segment has any."""
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
            self._crc = None
            unless_refused(self.save)

    def check(self) -> None:
        """Raise CorruptIndex if the entries are impossible, or differ from their checksum."""
        entries = self.entries
        last = self.base_offset - 1
        for entry in entries:
            if (
                entry.last_offset <= last
                or not 0 <= entry.first_offset <= entry.last_offset
                or not 0 <= entry.last_stable_offset <= entry.last_offset + 1
                or entry.producer_id < 0
            ):
                raise CorruptIndex(f"{self.path}: {entry} is out of place")
            last = entry.last_offset
        if self.has_checksum and self._files.read(self.checksum_path) != self._checksum():
            raise CorruptIndex(f"{self.path} does not match its checksum")

    def save_checksum(self) -> None:
        """Write the checksum of a closed segment's index, for the next start. Not durable."""
        if self.entries:
            checksum = self._checksum()
            if not self._files.exists(self.checksum_path) or self._files.read(self.checksum_path) != checksum:
                self._files.write(self.checksum_path, checksum)
            self.has_checksum = True
        else:
            self._forget_checksum()

    def _checksum(self) -> bytes:
        crc = self._crc
        if crc is None:
            crc = self._crc = crc32c(_content(self.entries))
        return CHECKSUM.pack(VERSION, crc)

    def _forget_checksum(self) -> None:
        if self.has_checksum:
            self._files.unlink(self.checksum_path)
            self.has_checksum = False

    def restart(self) -> None:
        """Drop every entry, but keep the files until the new entries are complete (`replace`)."""
        self._entries = []
        self._crc = 0
        self._unsaved = 0
        self._is_restarted = True

    def replace(self) -> None:
        """Replace the files by the complete new entries. Durable on return.

        A crash between the two files leaves a checksum that does not match. The next start repeats this."""
        content = _content(self.entries)
        if content or self._files.exists(self.path):
            self._files.replace(self.path, content)
        if content:
            self._files.replace(self.checksum_path, self._checksum())
            self.has_checksum = True
        else:
            self._forget_checksum()
        self._unsaved = 0
        self._is_restarted = self._is_file_longer = False

    def reset(self) -> None:
        self._entries = []
        self._crc = 0
        self._unsaved = 0
        self._is_file_longer = False
        if self._files.exists(self.path):
            self._files.open(self.path).truncate(0)


def _content(entries: list[AbortedTransactionEntry]) -> bytes:
    return b"".join([ENTRY.pack(VERSION, *entry) for entry in entries])


def parse_transaction_index(content: bytes, path: str) -> list[AbortedTransactionEntry]:
    if len(content) % ENTRY.size:
        raise CorruptIndex(f"{path}: {len(content)} bytes are not a whole number of entries")
    entries = []
    for version, *fields in ENTRY.iter_unpack(content):
        if version != VERSION:
            raise CorruptIndex(f"{path}: version {version} is unknown")
        entries.append(AbortedTransactionEntry(*fields))
    return entries
