"""`.index`: where in the segment a batch starts, one entry per `index.interval.bytes`.

An entry is `(last offset of the batch − base offset, its position in the file)`, four bytes each.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.core.files import ReadBuffer
from barnabas.storage.segment.sparse_index import CorruptIndex, SparseIndex

RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""A segment spans at most this many offsets: entries hold them in 31 bits."""


class OffsetIndex(SparseIndex):
    entry: ClassVar[struct.Struct] = struct.Struct(">ii")
    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        self._append(offset - self.base_offset, position)

    def maybe_append(self, offset: int, position: int) -> None:
        """Add the entry unless it is the last one already."""
        if not len(self) or self.at(len(self) - 1)[0] < offset - self.base_offset:
            self.append(offset, position)

    def position_before(self, offset: int) -> int:
        """A position from which a scan forward finds the batch that holds `offset`."""
        slot = self.floor(offset - self.base_offset)
        return 0 if slot < 0 else self.at(slot)[1]

    def offset_after(self, position: int) -> int | None:
        """The last offset of the first indexed batch at or beyond `position`, if there is one."""
        slot = self.floor(position - 1, field=1) + 1
        return None if slot >= len(self) else self.base_offset + self.at(slot)[0]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for `offset` and beyond."""
        self.keep(self.floor(offset - self.base_offset - 1) + 1)

    def _check(self, base: ReadBuffer, entries: int) -> None:
        first, first_position = self.entry.unpack_from(base, 0)
        last, last_position = self.entry.unpack_from(base, (entries - 1) * self.entry.size)
        if not (0 <= first <= last and 0 <= first_position <= last_position):
            raise CorruptIndex(f"{self.path}: last entry ({last}, {last_position}) precedes the first")
        if entries > 1 and last == 0:
            raise CorruptIndex(f"{self.path}: ends in empty entries")
