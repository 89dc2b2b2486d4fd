"""Reading from the segments of a log.

A fetch returns a region of one segment file. The search decodes no records, and its cost does not depend on
the length of the log."""

from __future__ import annotations

from barnabas.core.ids import NO_OFFSET
from barnabas.core.regions import FileRegion
from barnabas.storage.log.parts.segments import Segments
from barnabas.storage.segment.segment import Segment


class FetchData:
    """Part of one segment, from the batch that holds `fetch_offset`."""

    __slots__ = ("fetch_offset", "is_first_batch_incomplete", "records", "segment_base_offset", "size_bytes")

    def __init__(
        self,
        fetch_offset: int,
        records: FileRegion | bytes,
        *,
        segment_base_offset: int = NO_OFFSET,
        is_first_batch_incomplete: bool = False,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.records = records
        self.size_bytes = len(records)
        self.segment_base_offset = segment_base_offset
        self.is_first_batch_incomplete = is_first_batch_incomplete
        """The first batch is larger than the requested size, so the reader cannot decode it."""


def read(
    segments: Segments,
    offset: int,
    max_bytes: int,
    upper_offset: int,
    log_end_offset: int,
    min_one_batch: bool,
) -> FetchData:
    """Read batches of one segment, from the one that holds `offset`, up to `upper_offset`."""
    segment: Segment | None = segments.active
    if offset < segments.active.base_offset:
        segment = segments.floor(offset)
    located = None
    while segment is not None and (located := segment.locate(offset)) is None:
        segment = segments.following(segment)
    if segment is None or located is None:
        return FetchData(offset, b"")
    position, batch_bytes = located
    end_position = segment.size_bytes
    if upper_offset < log_end_offset:
        end_position = _end_position(segments, segment, upper_offset)
    if min_one_batch and max_bytes < batch_bytes:
        max_bytes = batch_bytes
    length = min(end_position - position, max_bytes)
    if length <= 0:
        return FetchData(offset, b"", is_first_batch_incomplete=max_bytes < batch_bytes)
    return FetchData(
        offset,
        FileRegion(segment.file, position, length),
        segment_base_offset=segment.base_offset,
        is_first_batch_incomplete=max_bytes < batch_bytes,
    )


def _end_position(segments: Segments, segment: Segment, upper_offset: int) -> int:
    """Position in the segment where the batches below `upper_offset` end."""
    if segment is not segments.active:
        following = segments.following(segment)
        if following is not None and following.base_offset <= upper_offset:
            return segment.size_bytes
    located = segment.locate(upper_offset)
    return segment.size_bytes if located is None else located[0]
