"""Fetching an offset range of one partition, in bounded pieces.

One fetch is in flight while the previous response is decoded. The batch headers of a response give its end
offset, so the next request leaves before any record is decoded. A task therefore holds at most two responses
and one decoded piece, at any lag.

Control batches hold no data and are dropped. Under read_committed, batches of aborted transactions are
dropped too, by the list in the fetch response. A range ends at an offset, not at a record: compaction and
transaction markers leave gaps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from barnabas.client.core.aborted_transactions import AbortedFilter
from barnabas.client.core.retries import Retries
from barnabas.client.core.steps import refusal
from barnabas.core.errors import (
    InconsistentTopicId,
    KafkaError,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.core.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.offset_numbers import EARLIEST, READ_COMMITTED
from barnabas.records.batch import RecordBatch, iterate_whole_batches
from barnabas.records.columnar.decode import DecodeTarget
from barnabas.records.columnar.legacy import decode_legacy, end_offset, is_legacy, legacy_prefix
from barnabas.records.columnar.pieces import decode_pieces
from barnabas.records.varint import Buffer
from pyspark_barnabas.shared.cluster import Cluster, wait

VERSION_BY_NAME: Final = 12
"""The last Fetch version with topic names. Later versions send topic ids, which reveal a topic that was
created again."""
VERSION_BY_ID: Final = 16
FETCH_WAIT_MS: Final = 500

logger = logging.getLogger(__name__)


class DataLoss(RuntimeError):
    """Offsets of the range are missing. With `failOnDataLoss=false` reading continues without them."""


def report_data_loss(message: str, *, fails: bool, remedy: str = "go on without them") -> None:
    """Raise DataLoss, or only log it with `failOnDataLoss=false`."""
    if fails:
        raise DataLoss(
            f"{message}. Set failOnDataLoss=false (fail_on_data_loss: false in a pipeline) to {remedy}."
        )
    logger.warning("data loss, and reading goes on because of failOnDataLoss=false: %s", message)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start` (included) to `end` (excluded) of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    """Topic id that the offsets belong to; empty where it is unknown."""

    @property
    def topic_partition(self) -> TopicPartition:
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
    target = DecodeTarget(wanted.topic, wanted.partition, options.columns)
    for piece in _RangeFetcher(cluster, wanted, options):
        if is_legacy(piece.records):
            yield from decode_legacy(piece.records, target, piece.start, wanted.end)
        else:
            batches = _kept_batches(piece.records, piece.aborted, options.isolation)
            yield from decode_pieces(batches, target, piece.start, wanted.end)


def read_batches(cluster: Cluster, wanted: OffsetRange, options: FetchOptions) -> Iterator[RecordBatch]:
    """Batches of the range as they are in the log, with control batches and aborted ones."""
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
    """Iterator over fetch responses until the range is covered."""

    def __init__(self, cluster: Cluster, wanted: OffsetRange, options: FetchOptions) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._options = options
        self._next = wanted.start
        self._bytes = options.fetch_bytes
        self._is_posted = False
        self._topic_id = Uuid.parse(wanted.topic_id) if wanted.topic_id else ZERO_UUID
        self._version_max = VERSION_BY_ID if wanted.topic_id else VERSION_BY_NAME

    def __iter__(self) -> Iterator[_Answer]:
        retries = self._cluster.state.retries(self._options.poll_timeout_ms)
        while self._next < self._wanted.end:
            start = self._next
            try:
                answer = self._take()
            except (OffsetOutOfRange, UnknownTopicOrPartition, UnknownTopicId, InconsistentTopicId) as error:
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
        """One fetch response. It may bring no progress."""
        start = self._next
        connection = self._cluster.leader(self._wanted.topic_partition)
        if not self._is_posted:
            connection.post(self._request(), FetchResponse, version_max=self._version_max)
        self._is_posted = False
        data = _partition_data(connection.take())
        if data.error_code:
            wanted = self._wanted.topic_partition
            right = f"READ on TOPIC {wanted.topic}"
            raise refusal(data.error_code, None, f"fetching {wanted} at offset {start}", needs=right)
        given = data.records if isinstance(data.records, memoryview) else b""
        records = self._advance(given)
        if self._next == start and len(given):
            self._bytes *= 2  # the next batch is larger than max_bytes
        elif start < self._next < self._wanted.end:
            connection.post(self._request(), FetchResponse, version_max=self._version_max)
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
            topics=[FetchTopic(topic=self._wanted.topic, topic_id=self._topic_id, partitions=[partition])],
        )

    def _advance(self, records: Buffer) -> Buffer:
        """Move the position past the last whole batch; returns the records to decode.

        Messages of magic 0 and 1 are returned without the batches after them.
        """
        if is_legacy(records):
            records = legacy_prefix(records)
            self._next = max(self._next, end_offset(records))
            return records
        for batch in iterate_whole_batches(records):
            self._next = max(self._next, batch.next_offset)
        return records

    def _skip_what_is_lost(self, error: KafkaError, retries: Retries) -> bool:
        """Handle missing offsets; returns whether reading can continue."""
        wanted = self._wanted
        if not isinstance(error, OffsetOutOfRange):
            existing = self._cluster.partitions([wanted.topic]).get(wanted.topic, 0)
            if self._is_of_another_topic():
                self._report_loss(
                    f"topic {wanted.topic} was deleted and created again; offsets {self._next} to"
                    f" {wanted.end} of {wanted.topic_partition} were the deleted topic's"
                )
                return False
            if wanted.partition < existing:
                wait(retries, error)  # its leader may not know of the partition yet
                self._cluster.state.forget()
                return True
            self._report_loss(
                f"{wanted.topic_partition} is gone; offsets {self._next} to {wanted.end} cannot be read"
            )
            return False
        earliest = self._cluster.list_offsets({wanted.topic_partition: EARLIEST}).get(
            wanted.topic_partition, wanted.end
        )
        if self._next < earliest:
            upto = min(earliest, wanted.end)
            self._report_loss(
                f"offsets {self._next} to {upto} of {wanted.topic_partition}"
                " were deleted before they were read"
            )
            self._next = upto
            return True
        self._report_loss(
            f"{wanted.topic_partition} ends before offset {self._next};"
            " was the topic deleted and created again?"
        )
        return False

    def _is_of_another_topic(self) -> bool:
        """True if the latest metadata show another topic id under the name."""
        expected = self._wanted.topic_id
        current = self._cluster.topic_ids([self._wanted.topic]).get(self._wanted.topic, expected)
        return bool(expected) and current != expected

    def _report_missing(self, waited_ms: float) -> None:
        wanted = self._wanted
        message = f"{wanted.topic_partition} gave nothing at offset {self._next} for {waited_ms:.0f} ms"
        self._report_loss(f"{message}, although the range ends at offset {wanted.end}")

    def _report_loss(self, message: str) -> None:
        report_data_loss(message, fails=self._options.fail_on_data_loss)


def _partition_data(answer: FetchResponse) -> PartitionData:
    if answer.error_code:
        raise error_for(answer.error_code, "fetch")
    return answer.responses[0].partitions[0]


def _aborted(data: PartitionData) -> list[tuple[int, int]]:
    return [(row.first_offset, row.producer_id) for row in data.aborted_transactions or ()]


def _kept_batches(
    records: Buffer, aborted: Sequence[tuple[int, int]], isolation: int
) -> Iterator[RecordBatch]:
    """Data batches that this isolation level reads, with their checksums verified."""
    dropped = AbortedFilter(aborted if isolation == READ_COMMITTED else ())
    for batch in iterate_whole_batches(records):
        if dropped.keeps(batch):
            batch.check_crc()
            yield batch
