"""`.timeindex`: up to which offset no timestamp is larger than this one.

An entry `(timestamp, offset − base offset)` says: the largest timestamp up to and including
that offset is this. Timestamps of entries only ascend; a closed segment ends with the largest
of all, which is what retention by time and the search by time ask for.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.core.files import Files, ReadBuffer
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.storage.segment.sparse_index import CorruptIndex, SparseIndex


class TimeIndex(SparseIndex):
    entry: ClassVar[struct.Struct] = struct.Struct(">qi")
    __slots__ = ("_last_timestamp",)

    def __init__(self, files: Files, path: str, base_offset: int, *, file_bytes: int = 0) -> None:
        super().__init__(files, path, base_offset, file_bytes=file_bytes)
        self._last_timestamp: int | None = None if self._base_entries else NO_TIMESTAMP

    def last(self) -> tuple[int, int]:
        """`(timestamp, offset)` of the last entry; NO_TIMESTAMP at the base offset without one."""
        entries = len(self)
        if not entries:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative_offset = self.at(entries - 1)
        return timestamp, self.base_offset + relative_offset

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the last one already says as much."""
        if self._last_timestamp is None:
            self._last_timestamp = self.last()[0]
        if timestamp > self._last_timestamp:
            self._last_timestamp = timestamp
            self._append(timestamp, offset - self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """An offset before which every timestamp is smaller than `timestamp`."""
        slot = self.floor(timestamp - 1)
        return self.base_offset if slot < 0 else self.base_offset + self.at(slot)[1]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for `offset` and beyond."""
        self.keep(self.floor(offset - self.base_offset - 1, field=1) + 1)
        self._last_timestamp = self.last()[0]

    def reset(self) -> None:
        super().reset()
        self._last_timestamp = NO_TIMESTAMP

    def _check(self, base: ReadBuffer, entries: int) -> None:
        first, first_offset = self.entry.unpack_from(base, 0)
        last, last_offset = self.entry.unpack_from(base, (entries - 1) * self.entry.size)
        if last < first or not 0 <= first_offset <= last_offset:
            raise CorruptIndex(f"{self.path}: last entry ({last}, {last_offset}) precedes the first")
