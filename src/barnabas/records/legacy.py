"""Message formats 0 and 1 of Kafka before 0.11: reading, up-conversion and down-conversion.

    offset i64 | size i32 | CRC-32 u32 | magic i8 | attributes i8 | timestamp i64 (magic 1)
    | key length i32 (-1: null), key | value length i32, value

There are no batches, only messages in a row. Compressed messages are the value of a wrapper message. In a
wrapper of magic 0 the inner offsets are the real ones. In one of magic 1 they count from 0, and the wrapper
has the offset of its last inner message. Wrappers do not nest.

These messages have no headers, no producer and no leader epoch. Down-conversion loses the
headers and leaves out control batches. The formats predate zstd, so zstd cannot be converted
down. LZ4 frames of magic 0 carry a header checksum that Kafka computed over too many bytes.
It is corrected before reading, and falsified again for clients that expect it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.core.bounds.budget import Budget
from barnabas.core.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from barnabas.core.limits import INFLATED_BATCH_BYTES_MAX
from barnabas.core.steps import Sliced
from barnabas.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    RecordBatch,
    codec_of,
    read_batch,
)
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Codec, compress, decompress
from barnabas.records.record import Record
from barnabas.records.steps import iterate_in_steps
from barnabas.records.varint import INT64_MAX, Buffer

_PREFIX: Final = struct.Struct(">qiIbb")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_CRC_FROM: Final = 16
_MESSAGE_BYTES_MIN: Final = (14, 22)
"""Smallest value of the size field, by magic: CRC to value length, with null key and value."""


class LegacyMessage:
    """A view of one message, which may be a wrapper; it has the properties that all formats share."""

    __slots__ = (
        "attributes",
        "buffer",
        "crc",
        "key",
        "magic",
        "offset",
        "position",
        "size_bytes",
        "timestamp",
        "value",
    )

    offset: int
    crc: int
    magic: int
    attributes: int

    is_control: Final = False

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        try:
            self.offset, size, self.crc, self.magic, self.attributes = _PREFIX.unpack_from(buffer, position)
            if self.magic not in (0, 1) or size < _MESSAGE_BYTES_MIN[self.magic]:
                raise CorruptMessage(f"A message of magic {self.magic} cannot have {size} bytes")
            self.size_bytes: int = LOG_OVERHEAD_BYTES + size
            at = position + _PREFIX.size
            self.timestamp: int = NO_TIMESTAMP
            if self.magic:
                (self.timestamp,) = _INT64.unpack_from(buffer, at)
                at += 8
            end = position + self.size_bytes
            self.key, at = _read_field(buffer, at, end)
            self.value, at = _read_field(buffer, at, end)
        except struct.error:
            raise CorruptMessage("A message is truncated") from None
        if at != end or end > len(buffer):
            raise CorruptMessage("A message's fields do not fill its size")

    @property
    def last_offset(self) -> int:
        return self.offset

    @property
    def next_offset(self) -> int:
        return self.offset + 1

    @property
    def max_timestamp(self) -> int:
        return self.timestamp

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == 1 and self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_valid_crc(self) -> bool:
        covered = memoryview(self.buffer)[self.position + _CRC_FROM : self.position + self.size_bytes]
        return zlib.crc32(covered) == self.crc

    def check_crc(self) -> None:
        """Raise CorruptMessage unless the stored checksum is that of the bytes."""
        if not self.is_valid_crc:
            raise CorruptMessage(f"Message is corrupt (stored CRC = {self.crc})")


def magic_of(buffer: Buffer, position: int = 0) -> int:
    """Magic of the batch or message at `position`: its position is the same in all formats."""
    if position + MAGIC_AT >= len(buffer):
        raise CorruptMessage("Records are truncated before their magic")
    return buffer[position + MAGIC_AT]


def iterate_messages(buffer: Buffer) -> Iterator[LegacyMessage]:
    """Every message or wrapper; the buffer must end where the last one ends."""
    position = 0
    while position < len(buffer):
        message = LegacyMessage(buffer, position)
        yield message
        position += message.size_bytes


def iterate_message_records(
    message: LegacyMessage, limit_bytes: int = INFLATED_BATCH_BYTES_MAX
) -> Iterator[Record]:
    """The record of a message, or the records in a wrapper, at their own offsets."""
    if not message.codec:
        yield Record(message.offset, message.timestamp, _own(message.key), _own(message.value))
        return
    inflated = _unwrap(message, limit_bytes)
    last_offset = _check_inner(message, inflated)
    # Inner offsets of magic 1 are relative, and only the real offset of the last one is known.
    shift = message.offset - last_offset if message.magic else 0
    for each in iterate_messages(inflated):
        timestamp = message.timestamp if message.is_log_append_time else each.timestamp
        yield Record(each.offset + shift, timestamp, _own(each.key), _own(each.value))


def _unwrap(message: LegacyMessage, limit_bytes: int) -> Buffer:
    if message.value is None:
        raise InvalidRecord("A compressed message has no value")
    compressed: Buffer = message.value
    if message.codec == Codec.ZSTD:
        raise InvalidRecord("Zstd cannot be used with magic 0 and 1")
    if message.codec == Codec.LZ4 and message.magic == 0:
        compressed = _with_lz4_checksum(compressed, is_over_magic=False)
    return decompress(message.codec, compressed, limit_bytes)


def _check_inner(message: LegacyMessage, inflated: Buffer) -> int:
    """Check every message in a wrapper; return the inner offset of the last one."""
    each = None
    for each in iterate_messages(inflated):
        if each.magic != message.magic:
            raise InvalidRecord("An inner message's magic is not that of its wrapper")
        if each.attributes & CODEC_MASK:
            raise InvalidRecord("Compressed messages must not nest")
        each.check_crc()
    if each is None:
        raise InvalidRecord("A compressed message holds no messages")
    return each.last_offset


def convert_up(
    buffer: Buffer, *, keep_offsets: bool = False, limit_bytes: int = INFLATED_BATCH_BYTES_MAX
) -> bytearray:
    """A set of messages as one v2 batch in the same codec.

    With `keep_offsets` the records keep their offsets, as a consumer must see them; otherwise they are
    numbered from 0, as a producer sends them. All messages together may inflate to `limit_bytes`.
    """
    codec = Codec.NONE
    for message in iterate_messages(buffer):
        message.check_crc()
        codec = message.codec or codec
    builder = None
    for message in iterate_messages(buffer):
        room_bytes = limit_bytes - (builder.inflated_size_bytes if builder else 0)
        for offset, timestamp, key, value, _headers in iterate_message_records(message, room_bytes):
            if keep_offsets and not 0 <= offset <= INT64_MAX:
                raise InvalidRecord(f"A message has offset {offset}")
            if builder is None:
                builder = BatchBuilder(base_offset=offset if keep_offsets else 0, codec=codec)
            builder.append(key, value, (), timestamp, offset if keep_offsets else None)
    if builder is None:
        raise InvalidRecord("A message set holds no messages")
    return builder.build()


def iterate_any(buffer: Buffer) -> Iterator[RecordBatch | LegacyMessage]:
    """Batches and messages of all formats in a row, as an old log holds them."""
    position = 0
    while position < len(buffer):
        is_batch = magic_of(buffer, position) >= MAGIC
        view = read_batch(buffer, position) if is_batch else LegacyMessage(buffer, position)
        yield view
        position += view.size_bytes


def convert_down(
    records: Buffer, magic: int, budget: Budget, *, first_offset: int, bytes_max: int
) -> Sliced[bytearray]:
    """Batches and messages as messages of `magic` or older, for a consumer of old formats.

    Records before `first_offset` are left out. The conversion ends with the record that makes it longer than
    `bytes_max`, or a quarter of that where it is compressed again. A few kilobytes can be millions of
    records, and a consumer continues after its last message.
    """
    assert magic in (0, 1)
    out = bytearray()
    for view in iterate_any(records):
        if view.is_control:
            continue
        if view.magic <= magic:
            out += memoryview(records)[view.position : view.position + view.size_bytes]
        else:
            room_bytes = bytes_max // 4 if view.codec else bytes_max - len(out)
            converted = yield from _convert_one(view, magic, budget, first_offset, room_bytes)
            out += _wrap(view, converted, magic) if view.codec else converted.messages
            if len(converted.messages) >= room_bytes:
                break
        if len(out) >= bytes_max:
            break
        yield
    return out


class _Converted(NamedTuple):
    messages: bytearray
    last_offset: int
    latest_timestamp: int


def _convert_one(
    view: RecordBatch | LegacyMessage, magic: int, budget: Budget, first_offset: int, room_bytes: int
) -> Sliced[_Converted]:
    """Records of one batch, up to the remaining room."""
    if view.codec == Codec.ZSTD:
        raise UnsupportedCompressionType("Zstd cannot be converted to message formats 0 and 1")
    records: Iterator[Record | None]
    if isinstance(view, RecordBatch):
        records = iterate_in_steps(view, first_offset=first_offset, budget=budget)
    else:
        records = iterate_message_records(view)
    messages = bytearray()
    attributes = _attributes(view, magic)
    is_relative = magic == 1 and view.codec != Codec.NONE
    shift, last_offset, latest, counted = 0, -1, NO_TIMESTAMP, 0
    for record in records:
        if record is None:
            budget.spend_records(counted)
            counted = 0
            yield
            continue
        counted += 1
        if record.offset < first_offset:
            continue
        if not messages and is_relative:
            shift = record.offset
        messages += _message(magic, attributes, record, record.offset - shift)
        last_offset, latest = record.offset, max(latest, record.timestamp)
        if len(messages) >= room_bytes:
            break
    return _Converted(messages, last_offset, latest)


def _wrap(batch: RecordBatch | LegacyMessage, converted: _Converted, magic: int) -> bytearray:
    inner, last_offset, latest = converted
    if not inner:
        return bytearray()
    compressed = compress(batch.codec, inner)
    if batch.codec == Codec.LZ4 and magic == 0:
        compressed = _with_lz4_checksum(compressed, is_over_magic=True)
    wrapper = Record(last_offset, latest, None, compressed)
    return _message(magic, _attributes(batch, magic) | batch.codec, wrapper, wrapper.offset)


def _attributes(batch: RecordBatch | LegacyMessage, magic: int) -> int:
    return LOG_APPEND_TIME_FLAG if magic and batch.is_log_append_time else 0


def _message(magic: int, attributes: int, record: Record, offset: int) -> bytearray:
    body = bytearray((magic, attributes))
    if magic:
        body += _INT64.pack(record.timestamp)
    for field in (record.key, record.value):
        body += _INT32.pack(-1 if field is None else len(field))
        body += field or b""
    message = bytearray(_PREFIX.pack(offset, 4 + len(body), zlib.crc32(body), magic, attributes))
    return message[:_CRC_FROM] + body


def _read_field(buffer: Buffer, position: int, end: int) -> tuple[memoryview | None, int]:
    (length,) = _INT32.unpack_from(buffer, position)
    position += 4
    if length < 0:
        return None, position
    if position + length > end:
        raise CorruptMessage("A key or value runs past the end of its message")
    return memoryview(buffer)[position : position + length], position + length


def _own(field: memoryview | None) -> bytes | None:
    return None if field is None else bytes(field)


# The header checksum of an LZ4 frame is the second byte of the xxHash-32 of the frame descriptor. Kafka
# computed it over the frame's magic number as well.

_LZ4_DESCRIPTOR_AT: Final = 4
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def _with_lz4_checksum(frame: Buffer, *, is_over_magic: bool) -> bytes:
    if len(frame) < _LZ4_DESCRIPTOR_AT + 3:
        raise CorruptMessage("An LZ4 frame ends early")
    flags = frame[_LZ4_DESCRIPTOR_AT]
    checksum_at = _LZ4_DESCRIPTOR_AT + 2 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if len(frame) <= checksum_at:
        raise CorruptMessage("An LZ4 frame ends early")
    covered = bytes(frame[0 if is_over_magic else _LZ4_DESCRIPTOR_AT : checksum_at])
    fixed = bytearray(frame)
    fixed[checksum_at] = _xxhash32(covered) >> 8 & 0xFF
    return bytes(fixed)


def _xxhash32(data: bytes) -> int:
    """xxHash-32 with seed 0 of fewer than 16 bytes, as in every frame header."""
    first, second, third, fourth, fifth = _PRIMES
    value = fifth + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * third & 0xFFFFFFFF
        value = (value << 17 | value >> 15) * fourth & 0xFFFFFFFF
    for byte in data[whole:]:
        value = value + byte * fifth & 0xFFFFFFFF
        value = (value << 11 | value >> 21) * first & 0xFFFFFFFF
    value = (value ^ value >> 15) * second & 0xFFFFFFFF
    value = (value ^ value >> 13) * third & 0xFFFFFFFF
    return value ^ value >> 16
