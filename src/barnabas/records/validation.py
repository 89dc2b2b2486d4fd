"""Validation of a producer's records before the leader appends them.

The rules are those of Kafka's ProduceRequest, UnifiedLog and LogValidator for magic 2, and a rejected produce
changes nothing in the log. The work is per batch: header fields and one checksum. The lengths of few records
are walked, and those of compressed records that claim to be many. Single records are read, inflated under a
cap, only where the topic's configs demand it. Compaction needs keys, a bound on old timestamps reads each
timestamp, and another codec than the producer's compresses again.

Gaps, on purpose (docs/adr/0003-batch-validation.md): other records are not read. So the largest timestamp of
the header is trusted, and consumers refuse malformed records inside a large or compressed batch with a
correct checksum.

`assign_offsets` assigns offsets and leader epoch afterwards, when the log knows them.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Iterator
from typing import Final

from barnabas.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
)
from barnabas.core.limits import (
    INSPECTED_BYTES_MAX,
    INSPECTED_INLINE_BYTES_MAX,
    INSPECTED_INLINE_RECORDS_MAX,
)
from barnabas.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    RECORD_COUNT_AT,
    TRANSACTIONAL_FLAG,
    RecordBatch,
    set_max_timestamp,
)
from barnabas.records.builder import reassemble_batch
from barnabas.records.checksum import crc32c
from barnabas.records.compression import CODEC_BY_NAME, Codec, compress_within, decompress
from barnabas.records.inspection import (
    RECORD_BYTES_MIN,
    RECORDS_NAMED_MAX,
    RecordsSummary,
    check_lengths,
    inspect_records,
)
from barnabas.records.record import inflate_payload, iterate_records
from barnabas.records.varint import INT64_MAX, INT64_MIN

CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
PRODUCER: Final = "producer"
UNBOUNDED_MS: Final = INT64_MAX
"""Default of `message.timestamp.before.max.ms`: no limit."""

LENGTHS_CHECKED_RECORDS_MAX: Final = 16
"""Up to this many uncompressed records, about 3 µs, lengths are followed one by one."""

INSPECTED_RECORDS_MAX: Final = 100_000
"""Records that may be read one by one, about 0.15 s; 850 bytes of zstd can hold a million.

Beyond it the error is MESSAGE_TOO_LARGE, on which Java producers split the batch and retry.
"""

COUNTED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Inflated size up to which the records of a batch are counted."""

_put_int64: Final = struct.Struct(">q").pack_into
_put_int32: Final = struct.Struct(">i").pack_into
_take_int32: Final = struct.Struct(">i").unpack_from

_RATIO_MAX: Final = (1, 1_032, 64, 255, 1 << 20)
"""Largest inflation of a byte by codec, by the design of its format."""


@dataclasses.dataclass(frozen=True, slots=True)
class ValidationSettings:
    """Topic configs that affect validation."""

    max_message_bytes: int = 1_048_588
    timestamp_type: str = CREATE_TIME
    timestamp_before_max_ms: int = UNBOUNDED_MS
    timestamp_after_max_ms: int = 3_600_000
    compression_type: str = PRODUCER
    compression_level: int | None = None
    compacted: bool = False


class ValidatedRecords:
    """Records that may be appended once `assign_offsets` has set their offsets."""

    __slots__ = (
        "batches",
        "buffer",
        "log_append_time",
        "max_timestamp",
        "offset_of_max_timestamp",
        "record_count",
    )

    def __init__(
        self, buffer: bytearray | memoryview, batch: RecordBatch, max_timestamp: int, log_append_time: int
    ) -> None:
        self.buffer = buffer
        """Bytes to write: the producer's own, or new ones when they were rewritten."""
        self.batches = [batch]
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp: int = batch.last_offset_delta
        """The last offset of the batch that has it, as Kafka's time index requires."""
        self.record_count: int = batch.record_count
        self.log_append_time = log_append_time
        """For the produce response; -1 when the producer's own timestamps are kept."""


def validate_produce(
    records: bytearray | memoryview | None,
    *,
    settings: ValidationSettings,
    now_ms: int,
) -> ValidatedRecords:
    """Validate the records that a client sends to one partition. `records` may be patched in place."""
    batch = _only_batch(records)
    produced = batch.buffer
    assert not isinstance(produced, bytes)
    codec = batch.attributes & CODEC_MASK
    if batch.base_offset != 0:
        raise InvalidRecord(f"The base offset of a record batch should be 0, but it is {batch.base_offset}")
    if batch.size_bytes > settings.max_message_bytes:
        raise _too_large(batch.size_bytes, settings)
    if crc32c(memoryview(produced)[ATTRIBUTES_AT:]) != batch.crc:
        raise CorruptMessage(f"Record batch is corrupt (stored CRC = {batch.crc})")
    _check_header(batch)

    if _demands_inspection(settings, codec):
        return _validate_each_record(batch, settings, now_ms)
    if not codec:
        _check_structure(produced, batch.record_count)
    elif codec > Codec.ZSTD:
        raise InvalidRecord(f"Unknown compression type {codec}")
    elif batch.record_count > batch.size_bytes - HEADER_BYTES:
        _count_records(batch)
    return _settle_timestamps(batch, batch.max_timestamp, settings, now_ms)


def assign_offsets(validated: ValidatedRecords, base_offset: int, leader_epoch: int) -> None:
    """Patch offsets and leader epoch into the bytes and views of the records."""
    buffer = validated.buffer
    validated.offset_of_max_timestamp += base_offset
    for batch in validated.batches:
        position = batch.position
        batch.base_offset = base_offset
        batch.leader_epoch = leader_epoch
        _put_int64(buffer, position, base_offset)
        _put_int32(buffer, position + LOG_OVERHEAD_BYTES, leader_epoch)
        base_offset += batch.last_offset_delta + 1


def is_long_validation(records: bytearray | memoryview, settings: ValidationSettings) -> bool:
    """Whether a thread validates the batch: its records have to be read one by one, and their number or
    inflated size would block the loop. The batch need not be valid."""
    if len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
        return False
    codec = records[ATTRIBUTES_AT + 1] & CODEC_MASK
    (count,) = _take_int32(records, RECORD_COUNT_AT)
    if not _demands_inspection(settings, codec):
        return codec != Codec.NONE and count > max(len(records), INSPECTED_INLINE_RECORDS_MAX)
    if count > INSPECTED_INLINE_RECORDS_MAX:
        return True
    ratio = _RATIO_MAX[codec] if codec < len(_RATIO_MAX) else 1
    return len(records) * ratio > INSPECTED_INLINE_BYTES_MAX


def _demands_inspection(settings: ValidationSettings, codec: int) -> bool:
    return (
        settings.compacted
        or settings.timestamp_before_max_ms != UNBOUNDED_MS
        or (settings.compression_type != PRODUCER and CODEC_BY_NAME[settings.compression_type] != codec)
    )


def is_one_batch(records: object) -> bool:
    """Whether a produce request may carry these bytes at all; the batch need not be valid."""
    try:
        _only_batch(records if isinstance(records, bytearray | memoryview) else None)
    except KafkaError:
        return False
    return True


def _only_batch(records: bytearray | memoryview | None) -> RecordBatch:
    if not records:
        raise InvalidRecord("Produce requests must have at least one record batch per partition")
    size_bytes = len(records)
    if size_bytes > MAGIC_AT and records[MAGIC_AT] != MAGIC:
        raise InvalidRecord("Produce requests may only contain record batches with magic version 2")
    if size_bytes < HEADER_BYTES:
        raise CorruptMessage("Record batch is truncated inside its header")
    batch = RecordBatch(records)
    if batch.size_bytes != size_bytes:
        if batch.size_bytes < HEADER_BYTES:
            raise CorruptMessage(f"Record batch size {batch.size_bytes} is smaller than its header")
        if batch.size_bytes > size_bytes:
            raise CorruptMessage(f"Record batch of {batch.size_bytes} bytes is truncated to {size_bytes}")
        if _has_whole_batch(records, batch.size_bytes):
            raise InvalidRecord("Produce requests must have exactly one record batch per partition")
        # A truncated second batch is cut off, as at the tail of a log.
        batch = RecordBatch(memoryview(records)[: batch.size_bytes])
    return batch


def _has_whole_batch(records: bytearray | memoryview, position: int) -> bool:
    left_bytes = len(records) - position
    if left_bytes <= MAGIC_AT:
        return False
    (length,) = _take_int32(records, position + 8)
    if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or records[position + MAGIC_AT] != MAGIC:
        return True
    return bool(LOG_OVERHEAD_BYTES + length <= left_bytes)


def _check_header(batch: RecordBatch) -> None:
    count = batch.record_count
    if count <= 0 or batch.last_offset_delta != count - 1:
        raise InvalidRecord(
            f"Inconsistent last offset delta {batch.last_offset_delta} and count of records {count}"
        )
    if batch.attributes & CONTROL_FLAG:
        raise InvalidRecord("Clients are not allowed to write control records")
    if batch.producer_id >= 0:
        if batch.base_sequence < 0:
            raise InvalidRecord(f"Invalid sequence {batch.base_sequence} of producer id {batch.producer_id}")
    elif batch.attributes & TRANSACTIONAL_FLAG:
        raise InvalidRecord("Transactional records need a producer id")


def _check_structure(records: bytearray | memoryview, count: int) -> None:
    if count <= LENGTHS_CHECKED_RECORDS_MAX:
        check_lengths(memoryview(records)[HEADER_BYTES:], count)
    elif count * RECORD_BYTES_MIN > len(records) - HEADER_BYTES:
        raise InvalidRecord(f"A batch of {len(records)} bytes cannot hold {count} records")


def _count_records(batch: RecordBatch) -> None:
    """Count a compressed batch that claims more than a record per byte.

    Equal records compress that well, and a false claim would move the log end offset by billions.
    """
    if batch.record_count > INSPECTED_RECORDS_MAX:
        raise MessageTooLarge(f"{batch.record_count} records are too many to be counted")
    try:
        payload = inflate_payload(batch, COUNTED_BYTES_MAX)
    except CorruptMessage as error:
        raise InvalidRecord(error.message) from None
    except InvalidRecord as error:  # too many to count: smaller batches can be
        raise MessageTooLarge(error.message) from None
    check_lengths(payload, batch.record_count)


def _settle_timestamps(
    batch: RecordBatch, max_timestamp: int, settings: ValidationSettings, now_ms: int
) -> ValidatedRecords:
    """Check the largest timestamp, or replace all of them by the time of the append."""
    buffer = batch.buffer
    assert not isinstance(buffer, bytes)
    claims_append_time = batch.attributes & LOG_APPEND_TIME_FLAG
    if settings.timestamp_type == CREATE_TIME and max_timestamp != NO_TIMESTAMP:
        if max_timestamp - now_ms > settings.timestamp_after_max_ms:
            raise InvalidTimestamp(f"Timestamp {max_timestamp} is too far after the broker's time {now_ms}")
        if claims_append_time or max_timestamp != batch.max_timestamp:
            set_max_timestamp(buffer, batch.position, max_timestamp, is_log_append_time=False)
            batch = RecordBatch(buffer, batch.position)
        return ValidatedRecords(buffer, batch, max_timestamp, NO_TIMESTAMP)
    if claims_append_time:
        error = InvalidTimestamp("Producers should not set the timestamp type to LogAppendTime")
        named = range(min(batch.record_count, RECORDS_NAMED_MAX))
        error.record_errors = tuple((index, error.message) for index in named)
        raise error
    if settings.timestamp_type == CREATE_TIME:
        return ValidatedRecords(buffer, batch, NO_TIMESTAMP, NO_TIMESTAMP)
    set_max_timestamp(buffer, batch.position, now_ms, is_log_append_time=True)
    return ValidatedRecords(buffer, RecordBatch(buffer, batch.position), now_ms, now_ms)


def _validate_each_record(batch: RecordBatch, settings: ValidationSettings, now_ms: int) -> ValidatedRecords:
    if batch.record_count > INSPECTED_RECORDS_MAX:
        raise MessageTooLarge(f"{batch.record_count} records are too many to be read one by one")
    codec = batch.codec  # an unknown codec is invalid at any size
    try:
        payload = decompress(codec, batch.payload(), INSPECTED_BYTES_MAX) if codec else batch.payload()
    except CorruptMessage as error:
        # The checksum is right: resending the same bytes, as clients would, cannot help.
        raise InvalidRecord(error.message) from None
    except InvalidRecord as error:  # too many to inspect: smaller batches can be
        raise MessageTooLarge(error.message) from None
    summary = inspect_records(payload, batch.record_count)
    if not summary.has_consecutive_offsets:
        raise InvalidRecord("The offsets of a batch's records are not consecutive")
    if batch.is_log_append_time:
        lowest = highest = batch.max_timestamp
    else:
        lowest = batch.base_timestamp + summary.min_timestamp_delta
        highest = batch.base_timestamp + summary.max_timestamp_delta
        if lowest < INT64_MIN or highest > INT64_MAX:
            raise InvalidTimestamp("A record's timestamp does not fit in 64 bits")
    _check_keys_and_timestamps(batch, summary, lowest, highest, settings, now_ms)

    wanted = settings.compression_type
    target = batch.codec if wanted == PRODUCER else CODEC_BY_NAME[wanted]
    if target != batch.codec:
        # The same records, byte for byte, under the topic's codec.
        room_bytes = settings.max_message_bytes - HEADER_BYTES
        if target:
            payload = compress_within(target, payload, settings.compression_level, room_bytes)
        if len(payload) > room_bytes:
            raise _too_large(HEADER_BYTES + len(payload), settings)
        recompressed = reassemble_batch(
            batch,
            payload,
            attributes=batch.attributes & ~CODEC_MASK | target,
            max_timestamp=batch.max_timestamp,
            record_count=batch.record_count,
        )
        batch = RecordBatch(recompressed)
    return _settle_timestamps(batch, max(highest, NO_TIMESTAMP), settings, now_ms)


def _check_keys_and_timestamps(
    batch: RecordBatch,
    summary: RecordsSummary,
    lowest: int,
    highest: int,
    settings: ValidationSettings,
    now_ms: int,
) -> None:
    keyless = summary.without_key if settings.compacted else ()
    earliest = now_ms - settings.timestamp_before_max_ms
    latest = now_ms + settings.timestamp_after_max_ms
    untimely: list[tuple[int, str]] = []
    if settings.timestamp_type == CREATE_TIME and not earliest <= lowest <= highest <= latest:
        untimely = list(itertools.islice(_untimely(batch, earliest, latest), RECORDS_NAMED_MAX))
    if not keyless and not untimely:
        return
    error: KafkaError = InvalidRecord("Compacted topics do not accept records without a key")
    if untimely:
        error = InvalidTimestamp("One or more records have been rejected due to invalid timestamp")
    # A record with both faults is named once, by the fault that is checked first.
    faults = dict(untimely) | dict.fromkeys(keyless, "Compacted topics do not accept records without a key")
    error.record_errors = tuple(sorted(faults.items()))
    raise error


def _untimely(batch: RecordBatch, earliest: int, latest: int) -> Iterator[tuple[int, str]]:
    for index, record in enumerate(iterate_records(batch, INSPECTED_BYTES_MAX)):
        if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest:
            yield index, f"Timestamp {record.timestamp} is out of range [{earliest}, {latest}]"


def _too_large(size_bytes: int, settings: ValidationSettings) -> MessageTooLarge:
    return MessageTooLarge(
        f"A record batch of {size_bytes} bytes exceeds the maximum of {settings.max_message_bytes}"
    )
