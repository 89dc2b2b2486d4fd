"""Writer of a compacted segment: batches collect in memory and go to the file in large pieces.

The files end in `.cleaned` until the swap. After a crash at any moment, the log has either the old segments
or a complete new one. Until the swap the run owns the segment, and no other code uses it.
"""

from __future__ import annotations

from barnabas.core.files import Files
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.records.varint import Buffer
from barnabas.storage.files.names import CLEANED
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry

SYNC_EVERY_BYTES = 4 * 1024 * 1024
"""Bytes between two syncs: one sync of a hundred megabytes would block every write to the same disk."""


class SegmentWriter:
    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        buffer_bytes: int,
        index_interval_bytes: int,
    ) -> None:
        self.segment = Segment(
            files,
            directory,
            base_offset,
            created_ms=created_ms,
            index_interval_bytes=index_interval_bytes,
            name_suffix=CLEANED,
        )
        self._files = files
        self._buffer_bytes = buffer_bytes
        self._index_interval_bytes = index_interval_bytes
        self._parts: list[Buffer] = []
        self._buffered_bytes = 0
        self._last_indexed = 0
        self._synced_bytes = 0

    def open(self) -> None:
        """Remove the files of an earlier attempt and create the segment."""
        self.remove()
        self.segment.create()

    def append(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        segment = self.segment
        position = segment.size_bytes + self._buffered_bytes
        if max_timestamp > NO_TIMESTAMP:
            segment.note_timestamp(max_timestamp, last_offset)
        if position - self._last_indexed > self._index_interval_bytes:
            segment.offset_index.append(last_offset, position)
            segment.time_index.maybe_append(segment.max_timestamp, segment.offset_of_max_timestamp)
            self._last_indexed = position
        segment.note_last_batch(last_offset, position)
        self._parts.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes >= self._buffer_bytes:
            self.flush()

    def abort_recorded(self, entries: list[AbortedTransactionEntry]) -> None:
        """Add transactions whose markers are in this segment to its index."""
        for entry in entries:
            self.segment.transaction_index.append(entry)

    def flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            segment = self.segment
            segment.extend(data)
            self._parts.clear()
            self._buffered_bytes = 0
            if segment.size_bytes - self._synced_bytes >= SYNC_EVERY_BYTES:
                segment.file.sync()
                self._synced_bytes = segment.size_bytes

    def finish(self) -> None:
        """Write the rest, complete the indexes, and sync all files."""
        self.flush()
        segment = self.segment
        segment.indexed_up_to(self._last_indexed)
        segment.seal()
        for path in segment.existing_paths():
            self._files.sync(path)

    def remove(self) -> None:
        self.segment.remove_files()
