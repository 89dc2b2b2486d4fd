"""Record batch v2: a view over bytes that are the same on the wire and on disk.

    offset  field                 offset  field
         0  base offset       i64     27  base timestamp    i64
         8  batch length      i32     35  max timestamp     i64
        12  leader epoch      i32     43  producer id       i64
        16  magic             i8      51  producer epoch    i16
        17  CRC-32C           u32     53  base sequence     i32
        21  attributes        i16     57  record count      i32
        23  last offset delta i32     61  records, compressed as one

The CRC covers everything from the attributes on. Base offset and leader epoch lie before it,
so the leader that assigns them patches eight and four bytes in place and no checksum changes.

A batch here is a view. It holds the buffer and the position of the batch in it, and one precompiled struct
unpacks the header once. The receive buffer is reused after the request is handled, so a view must not outlive
it.

The package `crc32c` computes the checksum of a writable memoryview without a copy: 0.29 µs for
100 bytes, 51 µs for 1 MB. `google-crc32c` takes only `bytes`, and the copy makes it 0.63 µs
and 84 µs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from barnabas.core.errors import CorruptMessage, InvalidRecord
from barnabas.records.checksum import crc32c
from barnabas.records.compression import CODECS, Codec
from barnabas.records.varint import Buffer

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and batch length, which the batch length does not count."""

MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
RECORD_COUNT_AT: Final = 57

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1


def codec_of(attributes: int) -> Codec:
    """Codec of a batch, or of a message of formats 0 and 1: the bits are the same."""
    try:
        return CODECS[attributes & CODEC_MASK]
    except IndexError:
        raise InvalidRecord(f"Unknown compression type {attributes & CODEC_MASK}") from None


HEADER: Final = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_BYTES
_unpack_header = HEADER.unpack_from
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")
_LENGTH: Final = struct.Struct(">8xi")


class RecordBatch:
    """One batch at `position` of `buffer`; use `read_batch`, which checks that it is complete."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        (
            self.base_offset,
            batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = _unpack_header(buffer, position)
        self.size_bytes = LOG_OVERHEAD_BYTES + batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset of the next batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        """The base timestamp is the time from which tombstones may be removed."""
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequences count records and start over at 0 after 2^31 − 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def is_valid_crc(self) -> bool:
        return self.crc == self.compute_crc()

    def compute_crc(self) -> int:
        """Checksum of the bytes, regardless of the header."""
        position = self.position
        crc: int = crc32c(memoryview(self.buffer)[position + ATTRIBUTES_AT : position + self.size_bytes])
        return crc

    def check_crc(self) -> None:
        """Raise CorruptMessage unless the stored checksum is that of the bytes."""
        computed = self.compute_crc()
        if computed != self.crc:
            raise CorruptMessage(
                f"Record batch is corrupt (stored crc = {self.crc}, computed crc = {computed})"
            )

    def payload(self) -> memoryview:
        """The records, compressed or not, without the header."""
        position = self.position
        return memoryview(self.buffer)[position + HEADER_BYTES : position + self.size_bytes]

    def view(self) -> memoryview:
        """The whole batch."""
        position = self.position
        return memoryview(self.buffer)[position : position + self.size_bytes]

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets={self.base_offset}-{self.last_offset}, epoch={self.leader_epoch}, "
            f"bytes={self.size_bytes}, records={self.record_count}, attributes={self.attributes:#x}, "
            f"producer={self.producer_id}/{self.producer_epoch}/{self.base_sequence})"
        )


def read_header(buffer: Buffer, position: int = 0) -> RecordBatch:
    """The batch whose header is at `position`; its records need not be in the buffer."""
    try:
        batch = RecordBatch(buffer, position)
    except struct.error:
        raise CorruptMessage("Record batch is truncated inside its header") from None
    if batch.magic != MAGIC:
        raise CorruptMessage(f"Record batch has magic {batch.magic} where 2 is expected")
    if batch.size_bytes < HEADER_BYTES:
        raise CorruptMessage(f"Record batch size {batch.size_bytes} is smaller than its header")
    return batch


def read_batch(buffer: Buffer, position: int = 0) -> RecordBatch:
    """The batch at `position`, complete in the buffer. The CRC is not checked."""
    batch = read_header(buffer, position)
    if position + batch.size_bytes > len(buffer):
        raise CorruptMessage(
            f"Record batch of {batch.size_bytes} bytes is truncated to {len(buffer) - position}"
        )
    return batch


def is_whole(buffer: Buffer) -> bool:
    """Whether the buffer holds all of the batch at its front."""
    length: int = _LENGTH.unpack_from(buffer)[0]
    return HEADER_BYTES <= LOG_OVERHEAD_BYTES + length <= len(buffer)


def iterate_batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """Every batch; the buffer must end where the last one ends."""
    position = 0
    end = len(buffer)
    while position < end:
        batch = read_batch(buffer, position)
        yield batch
        position += batch.size_bytes


def iterate_whole_batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """Every complete batch: a fetch may end inside one, and that part is left out."""
    position = 0
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        batch = read_header(buffer, position)
        position += batch.size_bytes
        if position > end:
            return
        yield batch


def whole_batches(records: bytes, enough_bytes: int) -> memoryview:
    """The complete batches (or old messages) at the front, up to `enough_bytes` but at least one."""
    end = 0
    while end + LOG_OVERHEAD_BYTES <= len(records):
        (length,) = _LENGTH.unpack_from(records, end)
        following = end + LOG_OVERHEAD_BYTES + length
        if length <= 0 or following > len(records) or (end and following > enough_bytes):
            break
        end = following
    return memoryview(records)[:end]


def set_max_timestamp(
    buffer: bytearray | memoryview, position: int, max_timestamp: int, *, is_log_append_time: bool
) -> None:
    """Set the largest timestamp and its type, and with them a new CRC.

    With LogAppendTime every record of the batch has this timestamp, regardless of its own delta.
    """
    batch = RecordBatch(buffer, position)
    attributes = batch.attributes & ~LOG_APPEND_TIME_FLAG
    if is_log_append_time:
        attributes |= LOG_APPEND_TIME_FLAG
    if attributes == batch.attributes and max_timestamp == batch.max_timestamp:
        return
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, max_timestamp)
    _UINT32.pack_into(buffer, position + CRC_AT, batch.compute_crc())
