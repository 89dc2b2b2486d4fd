"""What goes into an append of a log (`log`), and what comes of it: `AppendInfo`.

A producer's records are validated (`records.validation`). Those of the broker's own making are only read
here, and so are those that a follower copies: as the leader wrote them, and whole batches only, because a
fetch may end inside one.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.core.errors import CorruptMessage
from barnabas.records.batch import (
    NO_TIMESTAMP,
    RecordBatch,
    iterate_batches,
    iterate_whole_batches,
    set_max_timestamp,
)
from barnabas.records.validation import LOG_APPEND_TIME, ValidatedRecords, ValidationSettings
from barnabas.storage.producers.producer_entry import BatchMetadata
from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX


class AppendInfo:
    """What an append did."""

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
        """-1 when records keep the producer's time."""
        self.record_count = record_count
        self.size_bytes = size_bytes
        self.is_duplicate = is_duplicate
        """A retry: nothing was written, and the offsets are those of the first time."""

    @classmethod
    def of_duplicate(cls, first: BatchMetadata, log_start_offset: int) -> AppendInfo:
        return cls(
            first.first_offset, first.last_offset, log_start_offset, first.timestamp, is_duplicate=True
        )


def trusted_records(
    records: bytearray | memoryview, settings: ValidationSettings, now_ms: int
) -> ValidatedRecords:
    """Batches of the broker's own making (coordinators, transaction markers): only read, not judged."""
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
    """The whole batches of a fetch from the leader, each with the right checksum."""
    batches = list(iterate_whole_batches(records))
    for batch in batches:
        batch.check_crc()
    return batches


def divided(batches: list[RecordBatch], size_bytes_max: int) -> Iterator[list[RecordBatch]]:
    """The batches in pieces that each fit into a segment; one batch is never cut, however large."""
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
