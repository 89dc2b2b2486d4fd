"""Input and result of an append (`AppendInfo`), and the write of a large one (`ThreadedWrite`).

`records.validation` validates a producer's records. Records of the broker itself are only parsed here. The
batches that a follower copies stay as the leader wrote them. Partial batches are left out, because a fetch
may end inside one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from threading import Lock

from barnabas.core.errors import CorruptMessage, KafkaError
from barnabas.core.files import DataFile
from barnabas.records.batch import (
    NO_TIMESTAMP,
    RecordBatch,
    iterate_batches,
    iterate_whole_batches,
    set_max_timestamp,
)
from barnabas.records.validation import LOG_APPEND_TIME, ValidatedRecords, ValidationSettings
from barnabas.storage.files.names import LOG
from barnabas.storage.producers.producer_entry import BatchMetadata
from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX
from barnabas.storage.segment.segment import Segment, write_whole

Records = bytearray | memoryview | ValidatedRecords
"""Records to append: as a producer sent them, or as a thread has validated them."""


class AppendInfo:
    """Result of an append."""

    __slots__ = (
        "first_offset", "is_duplicate", "last_offset", "log_append_time_ms", "log_start_offset",
        "record_count", "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_start_offset: int,
        log_append_time_ms: int = NO_TIMESTAMP,
        record_count: int = 0,
        size_bytes: int = 0,
        *,
        is_duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_start_offset = log_start_offset
        self.log_append_time_ms = log_append_time_ms
        """-1 when records keep the producer's timestamp."""
        self.record_count = record_count
        self.size_bytes = size_bytes
        self.is_duplicate = is_duplicate
        """A retry: no record was written, and the offsets are those of the first attempt."""

    @classmethod
    def of_duplicate(cls, first: BatchMetadata, log_start_offset: int) -> AppendInfo:
        return cls(
            first.first_offset, first.last_offset, log_start_offset, first.timestamp, is_duplicate=True
        )


Outcome = AppendInfo | KafkaError
"""Result of an append, or its error."""


class ThreadedWrite:
    """One write of a large append (`log.threaded_append`).

    It runs once: in the thread, or on the loop if `Log.settle` comes first."""

    __slots__ = (
        "_file", "_lock", "_path", "_position", "base_offset", "done", "error", "is_done", "outcome",
        "segment", "validated",
    )  # fmt: skip

    def __init__(
        self,
        segment: Segment,
        validated: ValidatedRecords,
        base_offset: int,
        done: Callable[[Outcome], None],
    ) -> None:
        self.segment = segment
        self.validated = validated
        self.base_offset = base_offset
        self.done = done
        self.outcome: Outcome | None = None
        """Set once the log has recorded the append."""
        self.error: OSError | None = OSError(errno.EIO, "the write did not finish")
        self.is_done = False
        self._file: DataFile = segment.file
        self._path = segment.path(LOG)
        self._position = segment.size_bytes
        self._lock = Lock()

    def perform(self) -> None:
        with self._lock:
            if self.is_done:
                return
            self.is_done = True
            try:
                write_whole(self._file, self._position, self.validated.buffer, self._path)
                self.error = None
            except OSError as error:
                self.error = error


def trusted_records(
    records: bytearray | memoryview, settings: ValidationSettings, now_ms: int
) -> ValidatedRecords:
    """Parse batches of the broker itself (coordinators, transaction markers) without validation."""
    batches = list(iterate_batches(records))
    if not batches:
        raise CorruptMessage("there is no batch to append")
    log_append_time = NO_TIMESTAMP
    if settings.timestamp_type == LOG_APPEND_TIME:
        log_append_time = now_ms
        for batch in batches:
            set_max_timestamp(records, batch.position, now_ms, is_log_append_time=True)
        batches = list(iterate_batches(records))
    newest = max(batches, key=lambda batch: batch.max_timestamp)
    validated = ValidatedRecords(records, batches[0], newest.max_timestamp, log_append_time)
    validated.batches = batches
    validated.record_count = sum(batch.record_count for batch in batches)
    before = 0
    for batch in batches:
        before += batch.last_offset_delta + 1
        if batch is newest:
            validated.offset_of_max_timestamp = before - 1
    return validated


def replicated_batches(records: bytes | bytearray | memoryview) -> list[RecordBatch]:
    """Parse the whole batches of a fetch from the leader and check their CRC."""
    batches = list(iterate_whole_batches(records))
    for batch in batches:
        batch.check_crc()
    return batches


def divided(batches: list[RecordBatch], size_bytes_max: int) -> Iterator[list[RecordBatch]]:
    """Divide the batches into pieces that each fit into a segment; a batch is never cut."""
    first, last = batches[0], batches[-1]
    if (
        last.position + last.size_bytes - first.position <= size_bytes_max
        and last.last_offset - first.base_offset <= RELATIVE_OFFSET_MAX
    ):
        yield batches
        return
    piece: list[RecordBatch] = []
    for batch in batches:
        if piece and (
            batch.position + batch.size_bytes - piece[0].position > size_bytes_max
            or batch.last_offset - piece[0].base_offset > RELATIVE_OFFSET_MAX
        ):
            yield piece
            piece = []
        piece.append(batch)
    yield piece
