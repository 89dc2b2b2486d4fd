"""Builder of v2 batches: for producers inside the broker, for tools, and for rewriting.

The coordinators write their state and the end-of-transaction markers through it, and the tools produce with
it. Compaction rebuilds batches, and a leader recompresses. A client's own batch never passes through on its
way to the log.

Offsets are deltas from the base offset, timestamps deltas from the first record's timestamp. A batch that
lost records to compaction keeps its base offset, its last offset delta and its sequence. So its range of
offsets and its producer's history do not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypedDict, Unpack

from barnabas.core.errors import InvalidRecord
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from barnabas.records.checksum import crc32c
from barnabas.records.compression import Codec, compress
from barnabas.records.record import (
    ABORT,
    COMMIT,
    CONTROL_KEY,
    END_TRANSACTION_VALUE,
    HEADER_KEY_ERRORS,
    EndTransactionMarker,
    Header,
    Record,
)
from barnabas.records.varint import Buffer, wrap_int64, write_varint

NewRecord = tuple[bytes | None, bytes | None, Sequence[Header], int]
"""Key, value, headers, timestamp."""

OFFSET_DELTA_MAX: Final = (1 << 31) - 1
_CRC_BYTES: Final = 4


class BatchBuilder:
    """Takes records one at a time and builds the batch.

    `log_append_time` makes the batch one of LogAppendTime, at that time.
    """

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_sequence",
        "_base_timestamp",
        "_codec",
        "_last_offset_delta",
        "_leader_epoch",
        "_level",
        "_log_append_time",
        "_max_timestamp",
        "_payload",
        "_producer_epoch",
        "_producer_id",
        "_record_count",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        log_append_time: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._codec = codec
        self._level = level
        self._log_append_time = log_append_time
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._attributes = (
            codec
            | (LOG_APPEND_TIME_FLAG if log_append_time is not None else 0)
            | (TRANSACTIONAL_FLAG if is_transactional else 0)
            | (CONTROL_FLAG if is_control else 0)
            | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
        )
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset_delta = -1
        self._record_count = 0
        self._payload = bytearray()

    @property
    def record_count(self) -> int:
        return self._record_count

    @property
    def inflated_size_bytes(self) -> int:
        """Size of the batch without compression."""
        return HEADER_BYTES + len(self._payload)

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header] = (),
        timestamp: int = NO_TIMESTAMP,
        offset: int | None = None,
    ) -> None:
        """Add a record at `offset`, or right after the previous one."""
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        offset_delta = self._last_offset_delta + 1 if offset is None else offset - self._base_offset
        if not self._last_offset_delta < offset_delta <= OFFSET_DELTA_MAX:
            raise InvalidRecord("Offsets must grow within a batch, and stay within 2^31 of its first")
        self._last_offset_delta = offset_delta
        self._record_count += 1

        body = bytearray(1)  # record attributes, all unused
        write_varint(body, wrap_int64(timestamp - self._base_timestamp))
        write_varint(body, offset_delta)
        _write_bytes(body, key)
        _write_bytes(body, value)
        write_varint(body, len(headers))
        for header_key, header_value in headers:
            _write_bytes(body, header_key.encode(errors=HEADER_KEY_ERRORS))
            _write_bytes(body, header_value)
        write_varint(self._payload, len(body))
        self._payload += body

    def build(self, *, last_offset_delta: int | None = None, max_timestamp: int | None = None) -> bytearray:
        """The batch; the arguments replace values that its records no longer show."""
        if max_timestamp is None:
            max_timestamp = self._max_timestamp if self._log_append_time is None else self._log_append_time
        return assemble_batch(
            compress(self._codec, self._payload, self._level)
            if self._codec and self._payload
            else self._payload,
            base_offset=self._base_offset,
            leader_epoch=self._leader_epoch,
            attributes=self._attributes,
            last_offset_delta=self._last_offset_delta if last_offset_delta is None else last_offset_delta,
            base_timestamp=NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._base_sequence,
            record_count=self._record_count,
        )


def assemble_batch(
    payload: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """A header with its checksum in front of records that are already encoded."""
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    batch += payload
    with memoryview(batch) as view:
        crc: int = crc32c(view[ATTRIBUTES_AT:])
    batch[CRC_AT : CRC_AT + _CRC_BYTES] = crc.to_bytes(_CRC_BYTES, "big")
    return batch


def reassemble_batch(
    batch: RecordBatch, payload: Buffer, *, attributes: int, max_timestamp: int, record_count: int
) -> bytearray:
    """`batch` with other records, already encoded: its offsets and its producer stay."""
    return assemble_batch(
        payload,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=attributes,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        record_count=record_count,
    )


class BatchFields(TypedDict, total=False):
    """Optional header fields of a batch of consecutive records."""

    base_offset: int
    leader_epoch: int
    codec: Codec
    level: int | None
    log_append_time: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool


def build_batch(records: Iterable[NewRecord], **fields: Unpack[BatchFields]) -> bytearray:
    """A batch of consecutive records."""
    builder = BatchBuilder(**fields)
    for key, value, headers, timestamp in records:
        builder.append(key, value, headers, timestamp)
    return builder.build()


def build_end_transaction_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
) -> bytearray:
    """The control batch that commits or aborts a producer's transaction in one partition."""
    key = CONTROL_KEY.pack(0, COMMIT if marker.is_commit else ABORT)
    value = END_TRANSACTION_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [(key, value, (), timestamp)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def rebuild_batch(
    batch: RecordBatch, records: Iterable[Record], *, delete_horizon_ms: int | None = None
) -> bytearray:
    """`batch` with only `records` left in it, at their offsets.

    With a delete horizon the base timestamp is that time, as Kafka's cleaner writes it. Without records the
    header remains, because it holds the producer's last sequence. It then names no codec, since readers would
    try to inflate nothing.
    """
    records = list(records)
    if delete_horizon_ms is None and batch.has_delete_horizon:
        delete_horizon_ms = batch.base_timestamp
    builder = BatchBuilder(
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        codec=batch.codec if records else Codec.NONE,
        log_append_time=batch.max_timestamp if batch.is_log_append_time else None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=delete_horizon_ms,
    )
    for offset, timestamp, key, value, headers in records:
        builder.append(key, value, headers, timestamp, offset)
    # An empty batch keeps its old maximum, or retention would treat it as ancient.
    max_timestamp = None if builder.record_count else batch.max_timestamp
    return builder.build(last_offset_delta=batch.last_offset_delta, max_timestamp=max_timestamp)


def _write_bytes(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        out.append(1)  # the varint of -1
    else:
        write_varint(out, len(data))
        out += data
