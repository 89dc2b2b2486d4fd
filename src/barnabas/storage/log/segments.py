"""The segments of one log, by base offset. The last one is active: it alone grows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from barnabas.config.log_config import LogConfig
from barnabas.storage.environment import Environment
from barnabas.storage.names import DELETED, SWAP
from barnabas.storage.segment.segment import Segment


class Segments:
    __slots__ = ("_base_offsets", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        """At least one, ascending."""
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

    def behind(self, offset: int) -> list[Segment]:
        """The segments that start behind `offset`."""
        return self._segments[bisect_right(self._base_offsets, offset) :]

    # -- changing -----------------------------------------------------------------------------

    def delete(self, gone: list[Segment]) -> list[str]:
        """Out of the log, and out of the directory by name; returns the names to be unlinked later. At least
        one must stay."""
        self._set(self._without(gone))
        return [path for segment in gone for path in segment.rename(DELETED)]

    def replace(self, old: list[Segment], new: Segment) -> list[str]:
        """Put a compacted segment, complete and on disk, in the place of those it was made from.

        Whoever is reading from an old one keeps its file. Returns the names that the old files have now."""
        new.change_name_suffix(SWAP)
        self._set([*self._without(old), new])
        renamed = []
        for segment in old:
            # The snapshot at the start of the new segment is that of the first old one.
            is_first = segment.base_offset == new.base_offset
            renamed += segment.rename(DELETED, is_snapshot_included=not is_first)
        new.change_name_suffix("")
        return renamed

    def start_over(self, new: Segment) -> None:
        """Remove the files of all, and begin with this one, which has none yet."""
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
        """Close the files of every segment that no longer grows; they open again when read."""
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
    """A segment of a log with these settings; `file_bytes` are the sizes of its files, where it has some."""
    jitter_ms = config.segment_jitter_ms
    return Segment(
        environment.files,
        directory,
        base_offset,
        created_ms=environment.clock.now_ms(),
        index_interval_bytes=config.index_interval_bytes,
        roll_jitter_ms=environment.randomness.randrange(0, jitter_ms) if jitter_ms else 0,
        file_bytes=file_bytes,
    )
