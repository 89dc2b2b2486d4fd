"""Reading a range of one partition's offsets, a bounded piece at a time.

One fetch is in the air while the last one is decoded: the headers of an answer say where it ends,
so the next request leaves before any record is looked at. A task therefore holds at most two
answers and one decoded piece, whatever the lag.

Control batches carry no data for anyone and are dropped; under read_committed the batches of
aborted transactions are dropped as well, by the list that the broker sends along. A range ends at
an offset, not at a record: compaction and markers leave gaps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from barnabas.client.aborted import AbortedFilter
from barnabas.client.retries import Retries
from barnabas.core.errors import (
    KafkaError,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.offset_numbers import EARLIEST, READ_COMMITTED
from barnabas.records.batch import RecordBatch, iterate_whole_batches
from barnabas.records.varint import Buffer
from pyspark_barnabas.cluster import Cluster, wait
from pyspark_barnabas.decode import Place, decode_batches
from pyspark_barnabas.legacy import decode_legacy, end_offset, is_legacy, legacy_prefix

FETCH_VERSION: Final = 12
"""The last that speaks of topics by name."""
FETCH_WAIT_MS: Final = 500
PIECE_BYTES: Final = 1 << 20
"""Spark takes batches of about this size fastest."""
GROWTH_UNKNOWN: Final = float(PIECE_BYTES)
"""The first compressed batch is a piece of its own, and tells what the others will grow by."""

_log = logging.getLogger(__name__)


class DataLoss(RuntimeError):
    """Offsets that should be there are not; `failOnDataLoss=false` goes on without them."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start` (included) to `end` (excluded) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


@dataclass(frozen=True, slots=True)
class FetchOptions:
    columns: tuple[str, ...]
    isolation: int
    fail_on_data_loss: bool = True
    fetch_bytes: int = 4 << 20
    poll_timeout_ms: float = 120_000


def read_range(cluster: Cluster, wanted: OffsetRange, options: FetchOptions) -> Iterator[pa.RecordBatch]:
    """Every record of the range, in pieces of about a megabyte."""
    place = Place(wanted.topic, wanted.partition, options.columns)
    for piece in _RangeFetcher(cluster, wanted, options):
        if is_legacy(piece.records):
            yield from decode_legacy(piece.records, place, piece.start, wanted.end)
        else:
            batches = _kept_batches(piece.records, piece.aborted, options.isolation)
            yield from decode_pieces(batches, place, piece.start, wanted.end)


def read_batches(cluster: Cluster, wanted: OffsetRange, options: FetchOptions) -> Iterator[RecordBatch]:
    """The batches of the range as they are in the log, markers and aborted ones too."""
    for piece in _RangeFetcher(cluster, wanted, options):
        for batch in iterate_whole_batches(piece.records):
            if wanted.start <= batch.base_offset < wanted.end:
                yield batch


@dataclass(slots=True)
class _Answer:
    records: Buffer
    aborted: list[tuple[int, int]]
    start: int


class _RangeFetcher:
    """Iterates over fetch answers until the range is covered."""

    def __init__(self, cluster: Cluster, wanted: OffsetRange, options: FetchOptions) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._options = options
        self._next = wanted.start
        self._bytes = options.fetch_bytes
        self._is_posted = False

    def __iter__(self) -> Iterator[_Answer]:
        retries = self._cluster.state.retries(self._options.poll_timeout_ms)
        while self._next < self._wanted.end:
            start = self._next
            try:
                answer = self._take()
            except (OffsetOutOfRange, UnknownTopicOrPartition) as error:
                self._is_posted = False
                if not self._skip_what_is_lost(error, retries):
                    return
                continue
            except KafkaError as error:
                self._is_posted = False
                wait(retries, error)
                self._cluster.state.forget()
                continue
            if self._next > start:
                yield answer
                retries.begin_again()
            elif retries.left_ms < 0:
                self._report_missing(retries.waited_ms)
                return

    def _take(self) -> _Answer:
        """One answer; when it brought the end no nearer, nothing but time was lost."""
        start = self._next
        connection = self._cluster.leader(self._wanted.place)
        if not self._is_posted:
            connection.post(self._request(), FetchResponse, version_max=FETCH_VERSION)
        self._is_posted = False
        data = _partition_data(connection.take())
        if data.error_code:
            raise error_for(data.error_code, f"fetching {self._wanted.place} at offset {start}")
        given = data.records if isinstance(data.records, memoryview) else b""
        records = self._advance(given)
        if self._next == start and len(given):
            self._bytes *= 2  # one batch is larger than all that was asked for
        elif start < self._next < self._wanted.end:
            connection.post(self._request(), FetchResponse, version_max=FETCH_VERSION)
            self._is_posted = True
        return _Answer(records, _aborted(data), start)

    def _request(self) -> FetchRequest:
        partition = FetchPartition(
            partition=self._wanted.partition, fetch_offset=self._next, partition_max_bytes=self._bytes
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=self._bytes,
            isolation_level=self._options.isolation,
            topics=[FetchTopic(topic=self._wanted.topic, partitions=[partition])],
        )

    def _advance(self, records: Buffer) -> Buffer:
        """Past the last whole batch; what is to be decoded. Old messages come alone."""
        if is_legacy(records):
            records = legacy_prefix(records)
            self._next = max(self._next, end_offset(records))
            return records
        for batch in iterate_whole_batches(records):
            self._next = max(self._next, batch.next_offset)
        return records

    def _skip_what_is_lost(self, error: KafkaError, retries: Retries) -> bool:
        """Whether there is something to go on with."""
        wanted = self._wanted
        if isinstance(error, UnknownTopicOrPartition):
            existing = self._cluster.partitions([wanted.topic]).get(wanted.topic, 0)
            if wanted.partition < existing:
                wait(retries, error)  # its leader has yet to hear of it, or never will
                self._cluster.state.forget()
                return True
            self._lose(f"{wanted.place} is gone; offsets {self._next} to {wanted.end} cannot be read")
            return False
        earliest = self._cluster.list_offsets({wanted.place: EARLIEST}).get(wanted.place, wanted.end)
        if self._next < earliest:
            upto = min(earliest, wanted.end)
            self._lose(f"offsets {self._next} to {upto} of {wanted.place} were deleted before they were read")
            self._next = upto
            return True
        self._lose(f"{wanted.place} ends before offset {self._next}; was the topic made anew?")
        return False

    def _report_missing(self, waited_ms: float) -> None:
        wanted = self._wanted
        message = f"{wanted.place} gave nothing at offset {self._next} for {waited_ms:.0f} ms"
        self._lose(f"{message}, although offsets up to {wanted.end} were asked for")

    def _lose(self, message: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{message}. Set failOnDataLoss=false to go on without them.")
        _log.warning("%s", message)


def _partition_data(answer: FetchResponse) -> PartitionData:
    if answer.error_code:
        raise error_for(answer.error_code, "fetch")
    return answer.responses[0].partitions[0]


def _aborted(data: PartitionData) -> list[tuple[int, int]]:
    return [(row.first_offset, row.producer_id) for row in data.aborted_transactions or ()]


def _kept_batches(
    records: Buffer, aborted: Sequence[tuple[int, int]], isolation: int
) -> Iterator[RecordBatch]:
    """The batches that hold data for this reader, their checksums checked."""
    dropped = AbortedFilter(aborted if isolation == READ_COMMITTED else ())
    for batch in iterate_whole_batches(records):
        if dropped.keeps(batch):
            batch.check_crc()
            yield batch


def decode_pieces(
    batches: Iterator[RecordBatch], place: Place, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of about a megabyte, cut to the offsets from `start` to `end`.

    How much a compressed batch holds shows only when it is inflated, so the batches of a piece are
    counted with what those before them have grown by.
    """
    group: list[RecordBatch] = []
    group_bytes = 0.0
    growth = GROWTH_UNKNOWN
    for batch in batches:
        if batch.next_offset <= start:
            continue
        if batch.base_offset >= end:
            break
        group.append(batch)
        group_bytes += batch.size_bytes * (growth if batch.codec else 1)
        if group_bytes >= PIECE_BYTES:
            decoded = decode_batches(group, place, start, end)
            growth = _growth(group, decoded) or growth
            yield from _slices(decoded)
            group, group_bytes = [], 0
    if group:
        yield from _slices(decode_batches(group, place, start, end))


def _growth(group: Sequence[RecordBatch], decoded: pa.RecordBatch) -> float:
    """By which factor the whole of the batches is larger now, though some of it was cut off."""
    if not decoded.num_rows:
        return 0
    row_bytes: float = decoded.nbytes / decoded.num_rows
    records, size_bytes = sum(each.record_count for each in group), sum(each.size_bytes for each in group)
    return max(row_bytes * records / size_bytes, 1.0)


def _slices(decoded: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """One compressed batch may hold far more than a piece: Spark gets it in slices."""
    if not decoded.num_rows:
        return
    pieces = max(1, decoded.nbytes // (2 * PIECE_BYTES))
    rows = -(-decoded.num_rows // pieces)
    for first in range(0, decoded.num_rows, rows):
        yield decoded.slice(first, rows)
