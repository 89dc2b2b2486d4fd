"""Offset index (`.index`): positions of batches in the segment, one entry per `index.interval.bytes`.

An entry is `(last offset of the batch − base offset, its position in the file)`, four bytes each.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.core.ids import NO_OFFSET
from barnabas.storage.segment.sparse_index import CorruptIndex, SparseIndex

RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""Maximum number of offsets in a segment: entries hold them in 31 bits."""


class OffsetIndex(SparseIndex):
    entry: ClassVar[struct.Struct] = struct.Struct(">ii")
    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        self._append(offset - self.base_offset, position)

    def maybe_append(self, offset: int, position: int) -> None:
        """Add the entry unless it is already the last one."""
        if not len(self) or self.at(len(self) - 1)[0] < offset - self.base_offset:
            self.append(offset, position)

    def entry_before(self, offset: int) -> tuple[int, int]:
        """`(last offset, position)` of a batch from which a forward scan finds the one that holds `offset`.

        Without such an entry: NO_OFFSET and the start of the segment."""
        slot = self.floor(offset - self.base_offset)
        return (NO_OFFSET, 0) if slot < 0 else self.entry_at(slot)

    def entry_at(self, slot: int) -> tuple[int, int]:
        """`(last offset, position)` of the batch of entry number `slot`."""
        relative_offset, position = self.at(slot)
        if relative_offset < 0 or position < 0:
            raise CorruptIndex(f"{self.path}: entry {slot} is ({relative_offset}, {position})")
        return self.base_offset + relative_offset, position

    def slot_after(self, position: int) -> int | None:
        """First entry for a batch at or beyond `position`, if any."""
        slot = self.floor(position - 1, field=1) + 1
        return None if slot >= len(self) else slot

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for `offset` and beyond."""
        self.keep(self.floor(offset - self.base_offset - 1) + 1)

    def _check(self, first: tuple[int, ...], last: tuple[int, ...]) -> None:
        if not (0 <= first[0] <= last[0] and 0 <= first[1] <= last[1]):
            raise CorruptIndex(f"{self.path}: last entry {last} precedes the first")
        if self._base_entries > 1 and last[0] == 0:
            raise CorruptIndex(f"{self.path}: ends in empty entries")
