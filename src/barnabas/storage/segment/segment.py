"""One segment: a stretch of the log in one file, with its three indexes.

A segment knows how many valid bytes it has (`size_bytes`); what a failed write may have left
beyond is nobody's business and is overwritten by the next one. The file is opened when it is
first needed and closes with the last reader, so that a partition nobody talks to costs no
descriptor.

Consumers mostly ask for what was just written: the positions of the last few batches are
remembered, and a fetch near the end touches neither index nor file.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator

from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import DataFile, Files
from barnabas.records.batch import NO_TIMESTAMP, RecordBatch
from barnabas.storage.names import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_path,
)
from barnabas.storage.segment.batch_scan import GarbledLog, Header, find_batch, iterate_headers
from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.time_index import TimeIndex
from barnabas.storage.segment.transaction_index import TransactionIndex

RECENT_BATCHES_MAX = 32
"""Batches whose position is remembered; twice as many before the older half is dropped."""

_log = logging.getLogger(__name__)


class Segment:
    __slots__ = (
        "_file",
        "_files",
        "_first_timestamp",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_recent_offsets",
        "_recent_positions",
        "base_offset",
        "bytes_since_last_index_entry",
        "created_ms",
        "directory",
        "index_interval_bytes",
        "name_suffix",
        "offset_index",
        "roll_jitter_ms",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        index_interval_bytes: int,
        roll_jitter_ms: int = 0,
        file_bytes: dict[str, int] | None = None,
        name_suffix: str = "",
    ) -> None:
        sizes = file_bytes or {}
        self.name_suffix = name_suffix
        """Behind the names of its files, while it is not yet a part of the log."""
        self._files = files
        self._file: DataFile | None = None
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = sizes.get(LOG, 0)
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.index_interval_bytes = index_interval_bytes
        """How far apart the entries of its indexes lie."""
        self.bytes_since_last_index_entry = 0
        self.offset_index = OffsetIndex(
            files, self.path(OFFSET_INDEX), base_offset, file_bytes=sizes.get(OFFSET_INDEX, 0)
        )
        self.time_index = TimeIndex(
            files, self.path(TIME_INDEX), base_offset, file_bytes=sizes.get(TIME_INDEX, 0)
        )
        self.transaction_index = TransactionIndex(
            files, self.path(TRANSACTION_INDEX), base_offset, file_bytes=sizes.get(TRANSACTION_INDEX, 0)
        )
        # None stands for "not looked up yet": opening a log must not read every segment of it.
        self._max_timestamp: int | None = None if self.size_bytes else NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        self._first_timestamp: int | None = None
        self._recent_offsets: list[int] = []
        """The last offset of each of the last batches, ascending."""
        self._recent_positions: list[int] = []
        """Where each of them starts."""

    def path(self, suffix: str) -> str:
        return segment_path(self.directory, self.base_offset, suffix) + self.name_suffix

    @property
    def file(self) -> DataFile:
        file = self._file
        if file is None:
            file = self._file = self._files.open(self.path(LOG))
        return file

    def create(self) -> Segment:
        """Make the file of a new segment."""
        self._file = self._files.open(self.path(LOG), create=True)
        return self

    # -- writing ------------------------------------------------------------------------------

    def append(
        self,
        data: bytes | bytearray | memoryview,
        batches: list[RecordBatch],
        max_timestamp: int,
        offset_of_max_timestamp: int,
    ) -> None:
        """Write the batches, whose bytes are `data`, behind what is there, in one system call.

        A write that fails or is short leaves the segment as it was."""
        if self._max_timestamp is None:
            self.look_up_max_timestamp()
        written = (self._file or self.file).write_at(self.size_bytes, data)
        if written != len(data):
            explain_short_write(self.file, self.size_bytes, data, written, self.path(LOG))
        self.appended(len(data), batches, max_timestamp, offset_of_max_timestamp)

    def look_up_max_timestamp(self) -> None:
        """Before anything is written: it may read the file, and fail."""
        if self._max_timestamp is None:
            self._load_max_timestamp()

    def appended(
        self, length: int, batches: list[RecordBatch], max_timestamp: int, offset_of_max_timestamp: int
    ) -> None:
        """The batches are in the file, behind what was there: from here on they are a part of the segment."""
        position = self.size_bytes
        known_max = self.max_timestamp
        if max_timestamp > known_max:
            self._max_timestamp = known_max = max_timestamp
            self._offset_of_max_timestamp = offset_of_max_timestamp
        if position == 0:
            self._first_timestamp = max_timestamp
        since = self.bytes_since_last_index_entry
        if since > self.index_interval_bytes:
            self.offset_index.append(batches[0].last_offset, position)
            self.time_index.maybe_append(known_max, self._offset_of_max_timestamp)
            since = 0
        self.bytes_since_last_index_entry = since + length
        self.size_bytes = position + length
        offsets, positions = self._recent_offsets, self._recent_positions
        for batch in batches:
            offsets.append(batch.base_offset + batch.last_offset_delta)
            positions.append(position)
            position += batch.size_bytes
        if len(offsets) > 2 * RECENT_BATCHES_MAX:
            del offsets[:-RECENT_BATCHES_MAX], positions[:-RECENT_BATCHES_MAX]

    def cut_after_failure(self) -> None:
        """Take away what a failed write has left, if the disk still allows it."""
        try:
            self.file.truncate(self.size_bytes)
        except OSError as error:
            _log.warning("%s cannot be cut back: %s", self.path(LOG), error)

    def extend(self, data: bytes) -> None:
        """Write more of the file; the indexes are the caller's business."""
        if self.file.write_at(self.size_bytes, data) != len(data):
            raise OSError(f"short write to {self.path(LOG)}")
        self.size_bytes += len(data)

    def indexed_up_to(self, position: int) -> None:
        """The last entry of the indexes stands for the batch at `position`."""
        self.bytes_since_last_index_entry = self.size_bytes - position

    def should_roll(
        self,
        size_bytes: int,
        max_timestamp: int,
        last_offset: int,
        now_ms: int,
        segment_bytes: int,
        roll_after_ms: int,
        index_bytes: int,
    ) -> bool:
        """Whether an append of this size, time and offset belongs into a new segment."""
        size = self.size_bytes
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not size:
            return False  # however large it is, no other segment would suit it better
        if size + size_bytes > segment_bytes:
            return True
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp
        waited_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        if waited_ms > roll_after_ms - self.roll_jitter_ms:
            return True
        if 2 * size < index_bytes:
            return False  # entries are smaller than the batches they stand for
        # The time index keeps one entry free for the one written when the segment is closed.
        return self.offset_index.size_bytes + 8 > index_bytes or self.time_index.size_bytes + 24 > index_bytes

    # -- searching ----------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int] | None:
        """`(position, size)` of the first batch whose last offset is `offset` or larger."""
        offsets = self._recent_offsets
        positions = self._recent_positions
        if offsets and (offset > offsets[0] or not positions[0]):
            # Newest first: a tailing reader wants the last batch or the one before.
            slot = len(offsets) - 1
            if offset > offsets[slot]:
                return None
            while slot and offsets[slot - 1] >= offset:
                slot -= 1
            position = positions[slot]
            end = positions[slot + 1] if slot + 1 < len(positions) else self.size_bytes
            return position, end - position
        found = self.find(offset)
        return None if found is None else (found.position, found.size_bytes)

    def find(self, offset: int) -> Header | None:
        """The same, from the index and the file. A damaged index is rebuilt on the way."""
        try:
            return find_batch(self.file, self.offset_index.position_before(offset), self.size_bytes, offset)
        except (CorruptIndex, GarbledLog) as error:
            self.rebuild_indexes(str(error))
        try:
            return find_batch(self.file, self.offset_index.position_before(offset), self.size_bytes, offset)
        except GarbledLog as error:
            raise KafkaStorageError(f"{self.path(LOG)} is damaged: {error}") from error

    def headers(self, position: int = 0) -> Iterator[Header]:
        return iterate_headers(self.file, position, self.size_bytes)

    def read_next_offset(self) -> int:
        """One past the last offset in the file."""
        last = self.base_offset - 1
        if self.size_bytes:
            slot = len(self.offset_index) - 1
            try:
                position = self.offset_index.at(slot)[1] if slot >= 0 else 0
                for header in self.headers(position):
                    last = header.last_offset
            except (CorruptIndex, GarbledLog) as error:
                self.rebuild_indexes(str(error))
                for header in self.headers():
                    last = header.last_offset
        return last + 1

    def note_last_batch(self, last_offset: int, position: int) -> None:
        """Somebody else than `append` has found, or written, the last batch of the file."""
        self._recent_offsets = [last_offset]
        self._recent_positions = [position]

    def _last_batch(self) -> tuple[int, int] | None:
        if self._recent_offsets:
            return self._recent_offsets[-1], self._recent_positions[-1]
        known = self.sealed_end()
        try:
            *_, last = self.headers(known[1] if known else 0)
        except ValueError:
            return None  # there is no batch at all
        except GarbledLog as error:
            raise KafkaStorageError(f"{self.path(LOG)} is damaged: {error}") from error
        return last.last_offset, last.position

    def sealed_end(self) -> tuple[int, int] | None:
        """`(last offset, position)` of the last batch that the offset index knows."""
        try:
            slot = len(self.offset_index) - 1
            if slot < 0:
                return None
            relative_offset, position = self.offset_index.at(slot)
        except CorruptIndex:
            return None
        return self.base_offset + relative_offset, position

    def rebuild_indexes(self, reason: str) -> None:
        """Derive offset and time index anew from the headers of the batches."""
        _log.warning("rebuilding the indexes of %s: %s", self.path(LOG), reason)
        self.offset_index.reset()
        self.time_index.reset()
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        last_indexed = 0
        header: Header | None = None
        try:
            for header in self.headers():
                if header.max_timestamp > self._max_timestamp:
                    self._max_timestamp = header.max_timestamp
                    self._offset_of_max_timestamp = header.last_offset
                if header.position - last_indexed > self.index_interval_bytes:
                    self.offset_index.append(header.last_offset, header.position)
                    self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
                    last_indexed = header.position
        except GarbledLog as error:
            raise KafkaStorageError(f"{self.path(LOG)} is damaged: {error}") from error
        self.indexed_up_to(last_indexed)
        if header is not None:
            self.offset_index.maybe_append(header.last_offset, header.position)
        self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self.offset_index.create()
        self.time_index.create()

    # -- time ---------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any record here; NO_TIMESTAMP when there is none."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has it."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def note_timestamp(self, timestamp: int, offset: int) -> None:
        """Recovery found a batch with this largest timestamp."""
        if self._max_timestamp is None or timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    def forget_timestamps(self) -> None:
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = None

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first append, from which the age of the segment counts."""
        if self._first_timestamp is None:
            first = next(self.headers(), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    @property
    def largest_timestamp(self) -> int:
        """For retention: the largest timestamp, or when records have none, when it was last written."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._files.modified_ms(self.path(LOG))

    def _load_max_timestamp(self) -> None:
        try:
            timestamp, offset = self.time_index.last()
            # Behind the last entry there may be larger ones: only a closed segment ends with the largest.
            for header in self.headers(self.offset_index.position_before(offset)):
                if header.max_timestamp > timestamp:
                    timestamp, offset = header.max_timestamp, header.last_offset
        except (CorruptIndex, GarbledLog) as error:
            self.rebuild_indexes(str(error))
            return
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    # -- changing -----------------------------------------------------------------------------

    def prepare_cut(self, offset: int) -> int:
        """Open and read all that `truncate_to` needs; where the batch that holds `offset` starts."""
        found = self.find(offset)
        self.time_index.last()
        self.transaction_index.load()
        return self.size_bytes if found is None else found.position

    def truncate_to(self, offset: int, end_position: int) -> None:
        """Cut off the batch that holds `offset`, at `end_position`, and all behind it."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        if end_position < self.size_bytes:
            self.cut(end_position)

    def cut(self, size_bytes: int) -> None:
        """Keep the first `size_bytes` of the file; the indexes are the caller's business."""
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes
        self._recent_offsets.clear()
        self._recent_positions.clear()
        self.bytes_since_last_index_entry = 0
        if size_bytes:
            self._max_timestamp = None
        else:
            self.forget_timestamps()

    def seal(self) -> None:
        """No more appends, and another segment follows: complete the indexes, as a closed segment has them.

        The last entry of its offset index is its last batch: so recovery can tell whether it still ends
        where it ended (`sealed_end`). One that holds nothing has no such index: so recovery can tell it from
        one that has lost everything."""
        self._complete_indexes()
        if self._last_batch() is None:
            self._files.unlink(self.offset_index.path)
        else:
            self.offset_index.create()

    def close_for_now(self) -> None:
        """No more appends until the next start, and no segment follows: everything is there that other
        brokers look for."""
        self._complete_indexes()
        self.offset_index.create()

    def _complete_indexes(self) -> None:
        if self._max_timestamp is not None and self._max_timestamp >= 0:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        last_batch = self._last_batch()
        if last_batch is not None:
            self.offset_index.maybe_append(*last_batch)
        self.transaction_index.save()
        self.time_index.create()

    def release(self) -> None:
        """Close what can be opened again."""
        self._file = None
        self.offset_index.unmap()
        self.time_index.unmap()

    def update_index_interval(self, index_interval_bytes: int) -> None:
        self.index_interval_bytes = index_interval_bytes

    def derived_paths(self) -> list[str]:
        """The files of its indexes."""
        return self.existing_paths()[1:]

    def remove_files(self) -> None:
        for suffix in SEGMENT_SUFFIXES:
            self._files.unlink(self.path(suffix))

    def existing_paths(self) -> list[str]:
        return [path for path in map(self.path, SEGMENT_SUFFIXES) if self._files.exists(path)]

    def rename(self, suffix: str, *, is_snapshot_included: bool = True) -> list[str]:
        """Add this suffix to the name of every file of the segment; returns the new names."""
        renamed = []
        for path in (*self.existing_paths(), *(self._snapshot() if is_snapshot_included else ())):
            self._files.rename(path, path + suffix)
            renamed.append(path + suffix)
        return renamed

    def change_name_suffix(self, suffix: str) -> None:
        """Take one step on the way into the log: `.cleaned`, `.swap`, and no suffix at last."""
        for path in self.existing_paths():
            self._files.rename(path, path.removesuffix(self.name_suffix) + suffix)
        self.name_suffix = suffix
        self.moved_to(self.directory)

    def moved_to(self, directory: str) -> None:
        """The directory of the log has a new name."""
        self.directory = directory
        self.offset_index.path = self.path(OFFSET_INDEX)
        self.time_index.path = self.path(TIME_INDEX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX)

    def _snapshot(self) -> list[str]:
        path = self.path(PRODUCER_SNAPSHOT)
        return [path] if self._files.exists(path) else []

    def __repr__(self) -> str:
        return f"Segment(base_offset={self.base_offset}, size_bytes={self.size_bytes})"


def write_whole(file: DataFile, position: int, data: bytes | bytearray | memoryview, path: str) -> None:
    """All of `data`, in one system call, or an OSError. It may run in any thread."""
    written = file.write_at(position, data)
    if written != len(data):
        explain_short_write(file, position, data, written, path)


def explain_short_write(
    file: DataFile, position: int, data: bytes | bytearray | memoryview, written: int, path: str
) -> None:
    """A disk that fills up takes a part, and only at the next write says why."""
    file.write_at(position + written, memoryview(data)[written:])
    raise OSError(errno.EIO, f"{written} of {len(data)} bytes written", path)
