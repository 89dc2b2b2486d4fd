"""Batch of records for one partition: filled, sealed, sent, acknowledged or failed.

A batch takes records until it is full or drained. `seal` compresses them once and writes the header. A retry
sends the same bytes; new sequence numbers change the header and its checksum, never the records.

A batch that is too large for the broker is split. The parts are sent instead, and the batch is done when all
of them are. So a record keeps its batch and its position, wherever it ends up.

`outcome` gives the offset or the error of each record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.core.errors import InvalidRecord, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.records.appender import RecordAppender
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PRODUCER_ID_AT,
    TRANSACTIONAL_FLAG,
    read_batch,
)
from barnabas.records.builder import assemble_batch
from barnabas.records.checksum import crc32c
from barnabas.records.compression import Codec, compress
from barnabas.records.record import Record, iterate_records
from barnabas.records.varint import Buffer

NO_OFFSET: Final = -1
NO_APPEND_TIME: Final = -1
NO_BROKER_ID: Final = -1
RECORD_BYTES_MIN: Final = 7
HEADER_BYTES_MIN: Final = 2
_PRODUCER_FIELDS_BYTES: Final = 14
_SEQUENCE_MASK: Final = 0x7FFFFFFF

OTHER_RECORD_INVALID: Final = "the record was part of a batch with one or more invalid records"


class ProducerBatch:
    __slots__ = (
        "append_time_ms",
        "appender",
        "attempts",
        "base_offset",
        "base_sequence",
        "broker_id",
        "created_ms",
        "data",
        "error",
        "is_closed",
        "is_done",
        "is_doubted",
        "is_in_flight",
        "is_transactional",
        "leader_epoch",
        "part_of",
        "parts",
        "producer_epoch",
        "producer_id",
        "record_errors",
        "reserved_bytes",
        "retry_at_ms",
        "sealed_bytes",
        "sequence_was_reset",
        "topic_partition",
        "waiters",
        "was_lost",
    )

    def __init__(self, topic_partition: TopicPartition, reserved_bytes: int, created_ms: float) -> None:
        self.topic_partition = topic_partition
        self.reserved_bytes = reserved_bytes
        self.created_ms = created_ms
        self.appender = RecordAppender()
        self.data: bytearray | None = None
        """The sealed batch."""
        self.sealed_bytes = 0
        """Size of the records before compression, when the batch was sealed."""
        self.is_closed = False
        """True when the batch takes no more records."""
        self.attempts = 0
        self.retry_at_ms = 0.0
        self.broker_id = NO_BROKER_ID
        self.leader_epoch = NO_LEADER_EPOCH
        """Leader and leader epoch at the last attempt."""
        self.is_in_flight = False
        self.was_lost = False
        """True when a request with this batch has no answer: it may still be handled."""
        self.is_doubted = False
        """True when the numbers changed while a request was in flight that a broker may take for the next."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.is_transactional = False
        self.sequence_was_reset = False
        self.is_done = False
        self.base_offset = NO_OFFSET
        self.append_time_ms = NO_APPEND_TIME
        self.error: Exception | None = None
        self.record_errors: dict[int, str] = {}
        self.part_of: ProducerBatch | None = None
        self.parts: list[ProducerBatch] = []
        self.waiters: list[Callable[[], Any]] = []
        """Called once when the batch is done."""

    @property
    def record_count(self) -> int:
        return self.appender.record_count

    @property
    def size_bytes(self) -> int:
        """Size of the batch: exact when it is sealed, before compression until then."""
        return len(self.data) if self.data is not None else HEADER_BYTES + len(self.appender.payload)

    @property
    def size_inflated_bytes(self) -> int:
        """Size of the records before compression."""
        return self.sealed_bytes or len(self.appender.payload)

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.appender.record_count - 1) & _SEQUENCE_MASK

    # --- records in ---

    def seal(self, codec: Codec, level: int | None) -> None:
        """Close the batch and make its bytes, once."""
        self.is_closed = True
        if self.data is not None:
            return
        appender = self.appender
        payload: Buffer = compress(codec, appender.payload, level) if codec else appender.payload
        self.data = assemble_batch(
            payload,
            base_offset=0,
            leader_epoch=NO_LEADER_EPOCH,
            attributes=codec | (TRANSACTIONAL_FLAG if self.is_transactional else 0),
            last_offset_delta=appender.record_count - 1,
            base_timestamp=appender.base_timestamp,
            max_timestamp=appender.max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=appender.record_count,
        )
        self.sealed_bytes = len(appender.payload)
        appender.payload = bytearray()

    def set_producer(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Give the batch its place in the sequence, or another one."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, epoch, base_sequence
        data = self.data
        if data is None:
            return
        # The bytes may wait in a transport: a copy, so that the attempt in flight does not change.
        data = self.data = bytearray(data)
        fields = producer_id.to_bytes(8, "big", signed=True)
        fields += epoch.to_bytes(2, "big", signed=True) + base_sequence.to_bytes(4, "big", signed=True)
        data[PRODUCER_ID_AT : PRODUCER_ID_AT + _PRODUCER_FIELDS_BYTES] = fields
        with memoryview(data) as view:
            crc: int = crc32c(view[ATTRIBUTES_AT:])
        data[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")

    # --- outcome ---

    def complete(self, base_offset: int, append_time_ms: int) -> None:
        assert not self.is_done
        self.base_offset, self.append_time_ms = base_offset, append_time_ms
        self._finish()

    def fail(self, error: Exception, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        assert not self.is_done
        self.error = error
        self.record_errors = dict(record_errors)
        self._finish()

    def outcome(self, index: int) -> tuple[int, int] | Exception:
        """Offset and append time of a record, or its error. The batch is done."""
        assert self.is_done
        for part in self.parts:
            if index < part.record_count:
                return part.outcome(index)
            index -= part.record_count
        if self.error is not None:
            return self._error_of(index)
        offset = NO_OFFSET if self.base_offset == NO_OFFSET else self.base_offset + index
        return offset, self.append_time_ms

    def _error_of(self, index: int) -> Exception:
        assert self.error is not None
        if not self.record_errors:
            return self.error
        message = self.record_errors.get(index)
        if message is None:
            return InvalidRecord(OTHER_RECORD_INVALID)
        return type(self.error)(message) if isinstance(self.error, KafkaError) else self.error

    def _finish(self) -> None:
        self.is_done = self.is_closed = True
        self.appender.payload = bytearray()
        self.data = None
        waiters, self.waiters = self.waiters, []
        for wake in waiters:
            wake()
        whole = self.part_of
        if whole is not None and all(part.is_done for part in whole.parts):
            whole._finish()

    # --- split ---

    def split(self, size_bytes_max: int) -> list[ProducerBatch]:
        """Parts of at most `size_bytes_max` each, with at least one record, in the order of the records.
        This batch is done when they are.
        """
        assert self.data is not None
        assert self.record_count > 1
        whole = read_batch(self.data)
        parts: list[ProducerBatch] = []
        part: ProducerBatch | None = None
        for record in iterate_records(whole):
            size = _bytes_min(record)
            if part is None or part.size_bytes + size > size_bytes_max:
                part = ProducerBatch(self.topic_partition, 0, self.created_ms)
                part.is_closed = True
                part.is_transactional = self.is_transactional
                part.part_of = self
                parts.append(part)
            part.appender.append(record.key, record.value, record.headers, record.timestamp)
        self.parts = parts
        self.data = None
        return parts


def _bytes_min(record: Record) -> int:
    """Size of a record, whose lengths count as one byte each."""
    size = RECORD_BYTES_MIN + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += HEADER_BYTES_MIN + len(name) + len(content or b"")
    return size
