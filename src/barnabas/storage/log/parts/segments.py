"""Segments of one log, by base offset. Only the last one, the active segment, grows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from barnabas.config.log_config import LogConfig
from barnabas.core.regions import OpenFile
from barnabas.storage.files.environment import Environment
from barnabas.storage.files.names import DELETED, SWAP
from barnabas.storage.segment.segment import Segment


class Segments:
    __slots__ = ("_base_offsets", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        """`segments` has at least one, ascending."""
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def holds(self, file: OpenFile) -> bool:
        """Whether `file` is the open file of one of the segments."""
        return any(segment.is_open_as(file) for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Append a new active segment."""
        assert segment.base_offset > self._base_offsets[-1]
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def floor(self, offset: int) -> Segment | None:
        """Segment that covers `offset`."""
        slot = bisect_right(self._base_offsets, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def following(self, segment: Segment) -> Segment | None:
        """Segment after this one."""
        slot = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def since(self, offset: int) -> list[Segment]:
        """Segment that covers `offset`, and all later ones."""
        return self._segments[max(0, bisect_right(self._base_offsets, offset) - 1) :]

    def behind(self, offset: int) -> list[Segment]:
        """Segments that start above `offset`."""
        return self._segments[bisect_right(self._base_offsets, offset) :]

    # --- changing ---

    def delete(self, gone: list[Segment]) -> list[str]:
        """Remove segments and rename their files; returns the names to unlink later. One must stay."""
        self._set(self._without(gone))
        return [path for segment in gone for path in segment.rename(DELETED)]

    def replace(self, old: list[Segment], new: Segment) -> list[str]:
        """Replace segments by the compacted one made from them, which is complete and on disk.

        A fetch in progress keeps the old file. Returns the new names of the old files."""
        new.change_name_suffix(SWAP)
        self._set([*self._without(old), new])
        renamed = []
        for segment in old:
            # The first old segment's snapshot stays: the new segment starts at the same offset.
            is_first = segment.base_offset == new.base_offset
            renamed += segment.rename(DELETED, is_snapshot_included=not is_first)
        new.change_name_suffix("")
        return renamed

    def start_over(self, new: Segment) -> None:
        """Remove the files of all segments, and start with this one, which has none yet."""
        for segment in self._segments:
            segment.remove_files()
        self._set([new.create()])

    def update_index_interval(self, index_interval_bytes: int) -> None:
        for segment in self._segments:
            segment.update_index_interval(index_interval_bytes)

    def moved_to(self, directory: str) -> None:
        for segment in self._segments:
            segment.moved_to(directory)

    def release(self) -> None:
        for segment in self._segments:
            segment.release()

    def release_idle(self) -> None:
        """Close the files of every segment except the active one; a read opens them again."""
        for segment in self._segments[:-1]:
            segment.release()

    def _without(self, gone: list[Segment]) -> list[Segment]:
        absent = set(gone)
        return [segment for segment in self._segments if segment not in absent]

    def _set(self, segments: Iterable[Segment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self.active = self._segments[-1]


def new_segment(
    environment: Environment,
    directory: str,
    base_offset: int,
    config: LogConfig,
    file_bytes: dict[str, int] | None = None,
) -> Segment:
    """Segment of a log with this config; `file_bytes` has the sizes of its existing files."""
    jitter_ms = config.segment_jitter_ms
    return Segment(
        environment.files,
        directory,
        base_offset,
        created_ms=environment.clock.now_ms(),
        index_interval_bytes=config.indexed_every_bytes,
        roll_jitter_ms=environment.randomness.randrange(0, jitter_ms) if jitter_ms else 0,
        file_bytes=file_bytes,
        open_files=environment.open_files,
    )
