"""The segments of one log, by base offset. The last one is active: it alone grows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from barnabas.storage.segment.segment import Segment


class Segments:
    __slots__ = ("_base_offsets", "_segments", "active")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __reversed__(self) -> Iterator[Segment]:
        return reversed(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Put a new active segment behind all others."""
        assert segment.base_offset > self._base_offsets[-1]
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def floor(self, offset: int) -> Segment | None:
        """The segment that `offset` falls into."""
        slot = bisect_right(self._base_offsets, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def following(self, segment: Segment) -> Segment | None:
        """The next segment."""
        slot = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def since(self, offset: int) -> list[Segment]:
        """The segment that `offset` falls into, and all later ones."""
        return self._segments[max(0, bisect_right(self._base_offsets, offset) - 1) :]

    def starting_from(self, offset: int) -> list[Segment]:
        """The segments whose base offset is `offset` or larger."""
        return self._segments[bisect_left(self._base_offsets, offset) :]

    def drop(self, gone: Iterable[Segment]) -> None:
        """Forget segments; at least one must stay."""
        offsets = {segment.base_offset for segment in gone}
        self._segments = [segment for segment in self._segments if segment.base_offset not in offsets]
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self.active = self._segments[-1]

    def replace_all(self, segment: Segment) -> list[Segment]:
        """Start over with one segment; returns the old ones."""
        old = self._segments
        self._segments = [segment]
        self._base_offsets = [segment.base_offset]
        self.active = segment
        return old

    def replace(self, old: Iterable[Segment], new: Segment) -> None:
        """Compaction has rewritten `old` into `new`."""
        offsets = {segment.base_offset for segment in old}
        kept = [segment for segment in self._segments if segment.base_offset not in offsets]
        self.__init__([*kept, new])  # type: ignore[misc]
