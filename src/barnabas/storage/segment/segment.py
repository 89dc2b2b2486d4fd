"""Segment: a range of the log in one file, with its three indexes.

`size_bytes` is the number of valid bytes. A failed write may leave bytes beyond it; the next write overwrites
them. The file is opened on first use and closes with the last reader, so an idle partition costs no file
descriptor.

Most consumers read records that were just written. So the segment keeps the positions of its last batches,
and a fetch near the end reads neither index nor file.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator

from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import DataFile, Files
from barnabas.core.ids import NO_OFFSET
from barnabas.core.regions import OpenFile
from barnabas.records.batch import NO_TIMESTAMP, RecordBatch
from barnabas.storage.files.failures import GarbledLog
from barnabas.storage.files.names import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    TRANSACTION_INDEX_CHECKSUM,
    segment_path,
)
from barnabas.storage.files.open_files import OpenFiles
from barnabas.storage.segment.batch_scan import Header, find_batch, iterate_headers
from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.time_index import TimeIndex
from barnabas.storage.segment.transaction_index import TransactionIndex

RECENT_BATCHES_MAX = 32
"""Batches whose position is kept. The older half is dropped at twice this number."""

logger = logging.getLogger(__name__)


class Segment:
    __slots__ = (
        "_file",
        "_files",
        "_first_timestamp",
        "_is_time_index_complete",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_open_files",
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
        open_files: OpenFiles | None = None,
    ) -> None:
        sizes = file_bytes or {}
        self.name_suffix = name_suffix
        """Suffix of its file names while the segment is not yet part of the log."""
        self._files = files
        self._file: DataFile | None = None
        self._open_files = open_files
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = sizes.get(LOG, 0)
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.index_interval_bytes = index_interval_bytes
        """Distance between two entries of its indexes."""
        self.bytes_since_last_index_entry = 0
        self.offset_index = OffsetIndex(
            files, self.path(OFFSET_INDEX), base_offset, file_bytes=sizes.get(OFFSET_INDEX, 0)
        )
        self.time_index = TimeIndex(
            files, self.path(TIME_INDEX), base_offset, file_bytes=sizes.get(TIME_INDEX, 0)
        )
        self.transaction_index = TransactionIndex(
            files,
            self.path(TRANSACTION_INDEX),
            base_offset,
            file_bytes=sizes.get(TRANSACTION_INDEX, 0),
            checksum_path=self.path(TRANSACTION_INDEX_CHECKSUM),
            has_checksum=TRANSACTION_INDEX_CHECKSUM in sizes,
        )
        # None means "not read yet": opening a log must not read each of its segments.
        self._max_timestamp: int | None = None if self.size_bytes else NO_TIMESTAMP
        self._is_time_index_complete = bool(self.size_bytes)
        """Whether its last entry has the largest timestamp, since the segment was sealed or closed."""
        self._offset_of_max_timestamp = base_offset
        self._first_timestamp: int | None = None
        self._recent_offsets: list[int] = []
        """Last offsets of the last batches, ascending."""
        self._recent_positions: list[int] = []
        """Positions of these batches."""

    def path(self, suffix: str) -> str:
        return segment_path(self.directory, self.base_offset, suffix) + self.name_suffix

    @property
    def file(self) -> DataFile:
        file = self._file
        if file is None:
            file = self._files.open(self.path(LOG))
            self._opened(file)
        return file

    @property
    def open_file(self) -> DataFile | None:
        """The file, if it is open."""
        return self._file

    @property
    def file_name(self) -> str:
        return segment_path("", self.base_offset, LOG).removeprefix("/") + self.name_suffix

    def _opened(self, file: DataFile) -> None:
        self._file = file
        if self._open_files is not None:
            self._open_files.add(self)

    def close_file(self) -> None:
        """Close the file with its last reader; the next use reopens it."""
        self._file = None

    def is_open_as(self, file: OpenFile) -> bool:
        return self._file is file

    def create(self) -> Segment:
        """Create the file of a new segment."""
        self._opened(self._files.open(self.path(LOG), create=True))
        return self

    # --- append ---

    def append(
        self,
        data: bytes | bytearray | memoryview,
        batches: list[RecordBatch],
        max_timestamp: int,
        offset_of_max_timestamp: int,
    ) -> None:
        """Append the batches, whose bytes are `data`, in one system call.

        A failed or short write leaves the segment unchanged."""
        if self._max_timestamp is None:
            self.look_up_max_timestamp()
        written = (self._file or self.file).write_at(self.size_bytes, data)
        if written != len(data):
            explain_short_write(self.file, self.size_bytes, data, written, self.path(LOG))
        self.appended(len(data), batches, max_timestamp, offset_of_max_timestamp)

    def look_up_max_timestamp(self) -> None:
        """Read the maximum timestamp before an append, because the read may fail."""
        if self._max_timestamp is None:
            self._load_max_timestamp()

    def appended(
        self, length: int, batches: list[RecordBatch], max_timestamp: int, offset_of_max_timestamp: int
    ) -> None:
        """Record batches that were written behind the end, so that they become part of the segment."""
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
        """Remove the bytes that a failed write has left, if the disk still allows it."""
        try:
            self.file.truncate(self.size_bytes)
        except OSError as error:
            logger.warning(
                "cannot truncate %s after a failed write, recovery does it at the next start: %s",
                self.path(LOG),
                error,
            )

    def extend(self, data: bytes) -> None:
        """Append bytes to the file; the caller updates the indexes."""
        if self.file.write_at(self.size_bytes, data) != len(data):
            raise OSError(f"short write to {self.path(LOG)}")
        self.size_bytes += len(data)

    def indexed_up_to(self, position: int) -> None:
        """Record that the last index entry is for the batch at `position`."""
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
        """Whether an append of this size, timestamp and offset needs a new segment."""
        size = self.size_bytes
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not size:
            return False  # no other segment has more room than an empty one
        if size + size_bytes > segment_bytes:
            return True
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp
        waited_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        if waited_ms > roll_after_ms - self.roll_jitter_ms:
            return True
        if 2 * size < index_bytes:
            return False  # index entries are smaller than their batches
        # The time index keeps room for the entry that closing the segment adds.
        return self.offset_index.size_bytes + 8 > index_bytes or self.time_index.size_bytes + 24 > index_bytes

    # --- search ---

    def locate(self, offset: int) -> tuple[int, int] | None:
        """`(position, size)` of the first batch whose last offset is `offset` or larger."""
        offsets = self._recent_offsets
        positions = self._recent_positions
        if offsets and (offset > offsets[0] or not positions[0]):
            # Newest first: a consumer at the end of the log reads the last batch or the one before.
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
        """Find the same batch with the index and the file. A damaged index is rebuilt."""
        try:
            return self._find(offset)
        except (CorruptIndex, GarbledLog) as error:
            self.rebuild_indexes(str(error))
        try:
            return self._find(offset)
        except GarbledLog as error:
            raise KafkaStorageError(f"{self.path(LOG)} is damaged: {error}") from error

    def _find(self, offset: int) -> Header | None:
        indexed_offset, position = self.offset_index.entry_before(offset)
        return find_batch(self.file, position, self.size_bytes, offset, indexed_offset)

    def offset_after(self, position: int) -> int | None:
        """Offset above all batches before `position`; None if the index has no such entry."""
        try:
            return self._offset_after(position)
        except (CorruptIndex, GarbledLog) as error:
            self.rebuild_indexes(str(error))
        return self._offset_after(position)

    def _offset_after(self, position: int) -> int | None:
        slot = self.offset_index.slot_after(position)
        if slot is None:
            return None
        offset, batch_position = self.offset_index.entry_at(slot)
        if not self.offset_index.is_in_memory(slot):
            find_batch(self.file, batch_position, self.size_bytes, offset, offset)
        return offset

    def position_before_time(self, timestamp: int, start_offset: int) -> int:
        """Position from which a forward scan finds the first record that is at or after both arguments."""
        try:
            known = self.time_index.entry_before(timestamp)
            if known is not None and known[1] > start_offset:
                header = self.find(known[1])
                if header is None or header.max_timestamp != known[0]:
                    raise CorruptIndex(f"time index: no batch at {known[1]} has the time {known[0]}")
                return header.position
        except CorruptIndex as error:
            self.rebuild_indexes(str(error))
            return 0
        first = self.find(start_offset)
        return self.size_bytes if first is None else first.position

    def headers(self, position: int = 0) -> Iterator[Header]:
        return iterate_headers(self.file, position, self.size_bytes)

    def read_next_offset(self) -> int:
        """One past the last offset in the file."""
        last = self._last_header() if self.size_bytes else None
        return self.base_offset if last is None else last.last_offset + 1

    def _last_header(self) -> Header | None:
        slot = len(self.offset_index) - 1
        if slot >= 0:
            try:
                offset, position = self.offset_index.entry_at(slot)
                known = find_batch(self.file, position, self.size_bytes, offset, offset)
                return self._last_header_from(known)
            except (CorruptIndex, GarbledLog) as error:
                self.rebuild_indexes(str(error))
        return self._last_header_from(None)

    def _last_header_from(self, last: Header | None) -> Header | None:
        position = 0 if last is None else last.position
        for header in self.headers(position):
            last = header
        return last

    def note_last_batch(self, last_offset: int, position: int) -> None:
        """Record the last batch of the file, found by recovery or written by the cleaner."""
        self._recent_offsets = [last_offset]
        self._recent_positions = [position]

    def _last_batch(self) -> tuple[int, int] | None:
        if self._recent_offsets:
            return self._recent_offsets[-1], self._recent_positions[-1]
        try:
            last = self._last_header()
        except GarbledLog as error:
            raise KafkaStorageError(f"{self.path(LOG)} is damaged: {error}") from error
        return None if last is None else (last.last_offset, last.position)

    def sealed_end(self) -> tuple[int, int] | None:
        """`(last offset, position)` of the last batch in the offset index."""
        try:
            slot = len(self.offset_index) - 1
            return None if slot < 0 else self.offset_index.entry_at(slot)
        except CorruptIndex:
            return None

    def timed_end(self) -> int:
        """Last offset in the time index; NO_OFFSET if it is empty."""
        try:
            return self.time_index.last()[1] if len(self.time_index) else NO_OFFSET
        except CorruptIndex:
            return NO_OFFSET

    def rebuild_indexes(self, reason: str) -> None:
        """Derive the offset and time indexes again from the headers of the batches."""
        logger.warning("rebuilding the indexes of %s: %s", self.path(LOG), reason)
        self.offset_index.reset()
        self.time_index.reset()
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        last_indexed = 0
        header: Header | None = None
        next_offset, largest_offset = self.base_offset, self.base_offset + RELATIVE_OFFSET_MAX
        try:
            for header in self.headers():
                if header.base_offset < next_offset or header.last_offset > largest_offset:
                    raise GarbledLog(f"offset {header.base_offset} is out of place at {header.position}")
                next_offset = header.last_offset + 1
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

    # --- timestamps ---

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of any record in the segment; NO_TIMESTAMP without one."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the first batch with the largest timestamp."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def note_timestamp(self, timestamp: int, offset: int) -> None:
        """Record the largest timestamp of a batch, found by recovery or written by the cleaner."""
        if self._max_timestamp is None or timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    def forget_timestamps(self) -> None:
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = None

    @property
    def first_timestamp(self) -> int:
        """Largest timestamp of the first append, from which the age of the segment counts."""
        if self._first_timestamp is None:
            first = next(self.headers(), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    @property
    def largest_timestamp(self) -> int:
        """Age for retention: the largest timestamp, or the time of the last write without one."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._files.modified_ms(self.path(LOG))

    def _load_max_timestamp(self) -> None:
        try:
            timestamp, offset = self.time_index.last()
            position = 0
            if len(self.time_index):
                found = self.find(offset)
                if found is None or found.max_timestamp != timestamp:
                    raise CorruptIndex(f"time index: no batch at {offset} has the time {timestamp}")
                position = found.position
            # Clients wait for this walk over a million batches. The newest one shows whether it is needed.
            newest = self._last_header() if self._is_time_index_complete else None
            is_known = newest is not None and newest.max_timestamp <= timestamp
            for header in () if is_known else self.headers(position):
                if header.max_timestamp > timestamp:
                    timestamp, offset = header.max_timestamp, header.last_offset
        except (CorruptIndex, GarbledLog) as error:
            self.rebuild_indexes(str(error))
            return
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    # --- truncation, close, rename ---

    def prepare_cut(self, offset: int) -> int:
        """Open and read all that `truncate_to` needs; returns the position of the batch with `offset`."""
        found = self.find(offset)
        try:
            self._prepare_indexes()
        except CorruptIndex as error:
            self.rebuild_indexes(str(error))
            self._prepare_indexes()
        self.transaction_index.load()
        return self.size_bytes if found is None else found.position

    def _prepare_indexes(self) -> None:
        self.offset_index.prepare_cut()
        self.time_index.prepare_cut()
        self.time_index.last()

    def truncate_to(self, offset: int, end_position: int) -> None:
        """Remove the batch that holds `offset`, which is at `end_position`, and all later ones."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        if end_position < self.size_bytes:
            self.cut(end_position)

    def cut(self, size_bytes: int) -> None:
        """Truncate the file to `size_bytes`; the caller updates the indexes."""
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes
        self._recent_offsets.clear()
        self._recent_positions.clear()
        self.bytes_since_last_index_entry = 0
        self._is_time_index_complete = False
        if size_bytes:
            self._max_timestamp = None
        else:
            self.forget_timestamps()

    def seal(self) -> None:
        """Complete the indexes of a segment that another one follows. It gets no more appends.

        The last entry of the offset index is the last batch, so recovery can check that the segment still
        ends there (`sealed_end`). An empty segment has no offset index, so recovery can distinguish it from
        one that lost all of its records."""
        self._complete_indexes()
        if self._last_batch() is None:
            self._files.unlink(self.offset_index.path)
        else:
            self.offset_index.create()

    def close_for_now(self) -> None:
        """Complete the indexes of the active segment at a shutdown, with all files that Kafka expects."""
        self._complete_indexes()
        self.offset_index.create()

    def _complete_indexes(self) -> None:
        if self._max_timestamp is not None and self._max_timestamp >= 0:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        last_batch = self._last_batch()
        if last_batch is not None:
            self.offset_index.maybe_append(*last_batch)
        self.transaction_index.save()
        self.transaction_index.save_checksum()
        self.time_index.create()

    def release(self) -> None:
        """Close the file and drop cached index pages; the next use reopens them."""
        self.close_file()
        self._forget_open()
        self.offset_index.forget_pages()
        self.time_index.forget_pages()

    def update_index_interval(self, index_interval_bytes: int) -> None:
        self.index_interval_bytes = index_interval_bytes

    def derived_paths(self) -> list[str]:
        """Paths of its index files."""
        return self.existing_paths()[1:]

    def _forget_open(self) -> None:
        if self._open_files is not None:
            self._open_files.remove(self)

    def remove_files(self) -> None:
        self._forget_open()
        for suffix in SEGMENT_SUFFIXES:
            self._files.unlink(self.path(suffix))

    def existing_paths(self) -> list[str]:
        return [path for path in map(self.path, SEGMENT_SUFFIXES) if self._files.exists(path)]

    def rename(self, suffix: str, *, is_snapshot_included: bool = True) -> list[str]:
        """Add this suffix to the names of all files of the segment; returns the new names."""
        self._forget_open()
        renamed = []
        for path in (*self.existing_paths(), *(self._snapshot() if is_snapshot_included else ())):
            self._files.rename(path, path + suffix)
            renamed.append(path + suffix)
        return renamed

    def change_name_suffix(self, suffix: str) -> None:
        """Rename the files for the next step of a swap: `.cleaned`, `.swap`, then no suffix."""
        for path in self.existing_paths():
            self._files.rename(path, path.removesuffix(self.name_suffix) + suffix)
        self.name_suffix = suffix
        self.moved_to(self.directory)

    def moved_to(self, directory: str) -> None:
        """Update all paths after a rename of the log's directory."""
        self.directory = directory
        self.offset_index.path = self.path(OFFSET_INDEX)
        self.time_index.path = self.path(TIME_INDEX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX)
        self.transaction_index.checksum_path = self.path(TRANSACTION_INDEX_CHECKSUM)

    def _snapshot(self) -> list[str]:
        path = self.path(PRODUCER_SNAPSHOT)
        return [path] if self._files.exists(path) else []

    def __repr__(self) -> str:
        return f"Segment(base_offset={self.base_offset}, size_bytes={self.size_bytes})"


def write_whole(file: DataFile, position: int, data: bytes | bytearray | memoryview, path: str) -> None:
    """Write all of `data` in one system call, or raise OSError. Any thread may call it."""
    written = file.write_at(position, data)
    if written != len(data):
        explain_short_write(file, position, data, written, path)


def explain_short_write(
    file: DataFile, position: int, data: bytes | bytearray | memoryview, written: int, path: str
) -> None:
    """Raise the reason of a short write. A full disk takes a part, and only the next write fails."""
    file.write_at(position + written, memoryview(data)[written:])
    raise OSError(errno.EIO, f"{written} of {len(data)} bytes written", path)
