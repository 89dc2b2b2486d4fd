"""Time index (`.timeindex`): the largest timestamp up to an offset.

An entry is `(timestamp, offset − base offset)`: no record up to and including that offset has a larger
timestamp. Timestamps of entries ascend. The index of a closed segment ends with the largest of all, which
retention by time and the search by time use.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.core.files import Files
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.storage.segment.sparse_index import CorruptIndex, SparseIndex


class TimeIndex(SparseIndex):
    entry: ClassVar[struct.Struct] = struct.Struct(">qi")
    __slots__ = ("_last_timestamp",)

    def __init__(self, files: Files, path: str, base_offset: int, *, file_bytes: int = 0) -> None:
        super().__init__(files, path, base_offset, file_bytes=file_bytes)
        self._last_timestamp: int | None = None if self._base_entries else NO_TIMESTAMP

    def last(self) -> tuple[int, int]:
        """`(timestamp, offset)` of the last entry; NO_TIMESTAMP and the base offset without one."""
        entries = len(self)
        if not entries:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative_offset = self.at(entries - 1)
        return timestamp, self.base_offset + relative_offset

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the last one has the same or a larger timestamp."""
        if self._last_timestamp is None:
            self._last_timestamp = self.last()[0]
        if timestamp > self._last_timestamp:
            self._last_timestamp = timestamp
            self._append(timestamp, offset - self.base_offset)

    def entry_before(self, timestamp: int) -> tuple[int, int] | None:
        """`(timestamp, offset)` of the last entry below `timestamp`; None without one.

        Every record up to that offset has a smaller timestamp."""
        slot = self.floor(timestamp - 1)
        if slot < 0:
            return None
        found, relative_offset = self.at(slot)
        return found, self.base_offset + relative_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for `offset` and beyond."""
        self.keep(self.floor(offset - self.base_offset - 1, field=1) + 1)
        self._last_timestamp = self.last()[0]

    def restart(self) -> None:
        super().restart()
        self._last_timestamp = NO_TIMESTAMP

    def _check(self, first: tuple[int, ...], last: tuple[int, ...]) -> None:
        if last[0] < first[0] or not 0 <= first[1] <= last[1]:
            raise CorruptIndex(f"{self.path}: last entry {last} precedes the first")
