"""Records of a batch in small steps, for work on the loop.

Three kilobytes of zstd can hold five million records. A reader that inflates such a batch whole blocks the
loop for seconds and takes hundreds of megabytes. This module inflates it piece by piece, and keeps one record
at most. The iterator yields None after each piece, where its caller may pause.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final

from barnabas.core.bounds.budget import Budget
from barnabas.core.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from barnabas.core.limits import INFLATED_BATCH_BYTES_MAX, WALKED_RECORD_BYTES_MAX
from barnabas.records.batch import RecordBatch
from barnabas.records.compression import (
    Codec,
    check_lz4_blocks,
    check_zstd_frames_are_whole,
    snappy_blocks,
)
from barnabas.records.record import Record, read_record
from barnabas.records.varint import Buffer, read_varint, read_varlong, wrap_int64

STEP_BYTES: Final = 8 * 1024
"""At most a thousand records, a few milliseconds."""
RECORD_HEAD_BYTES_MAX: Final = 21
"""Length, attributes, timestamp delta and offset delta at their longest."""


def inflate_in_steps(
    codec: Codec, data: Buffer, limit_bytes: int = INFLATED_BATCH_BYTES_MAX
) -> Iterator[Buffer]:
    """Inflated bytes in pieces; InvalidRecord when there are more than `limit_bytes`."""
    total_bytes = 0
    for piece in _INFLATERS[codec](data):
        total_bytes += len(piece)
        if total_bytes > limit_bytes:
            raise InvalidRecord(f"Compressed records inflate to more than {limit_bytes} bytes")
        view = memoryview(piece)
        for start in range(0, len(view), STEP_BYTES):
            yield view[start : start + STEP_BYTES]


def iterate_in_steps(  # noqa: C901 - one loop, few calls
    batch: RecordBatch,
    *,
    budget: Budget,
    first_offset: int = 0,
    with_bodies: bool = True,
) -> Iterator[Record | None]:
    """Every record from `first_offset` on; without bodies their offsets and timestamps only.

    None after each piece, whose bytes spend the budget. A record with a body above WALKED_RECORD_BYTES_MAX
    raises MessageTooLarge.
    """
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    left = batch.record_count
    buffer = bytearray()
    position = 0
    skipped_bytes = 0
    for piece in inflate_in_steps(batch.codec, batch.payload()):
        budget.spend_inflated(len(piece))
        if skipped_bytes >= len(piece):
            skipped_bytes -= len(piece)
            yield None
            continue
        del buffer[:position]
        buffer += memoryview(piece)[skipped_bytes:]
        position = skipped_bytes = 0
        size_bytes = len(buffer)
        while left:
            start, length = _length_at(buffer, position)
            if length < 0:
                break
            end = start + length
            if end > size_bytes and start + RECORD_HEAD_BYTES_MAX > size_bytes:
                break  # the next piece has the rest of its head
            timestamp_delta, at = read_varlong(buffer, start + 1)
            offset_delta, at = read_varint(buffer, at)
            offset = base_offset + offset_delta
            timestamp = wrap_int64(base_timestamp + timestamp_delta) if append_time is None else append_time
            if not with_bodies or offset < first_offset:
                if offset >= first_offset:
                    yield Record(offset, timestamp, None, None)
            elif end > size_bytes:
                if length > WALKED_RECORD_BYTES_MAX:
                    raise MessageTooLarge(f"A record has {length} bytes, which is too much to be converted")
                break
            else:
                yield read_record(buffer, at, end, offset, timestamp)
            left -= 1
            position = end
            if position >= size_bytes:
                skipped_bytes, position = position - size_bytes, size_bytes
                break
        yield None
    if left:
        raise InvalidRecord("A batch holds fewer records than it says")


def _length_at(buffer: bytearray, position: int) -> tuple[int, int]:
    """Position of a record after its length, and that length; -1 if the length is truncated."""
    if len(buffer) - position < 5:
        try:
            length, start = read_varint(buffer, position)
        except InvalidRecord:
            return position, -1
    else:
        length, start = read_varint(buffer, position)
    if length < 0:
        raise InvalidRecord("A record is shorter than its fields")
    return start, length


def _store(data: Buffer) -> Iterator[Buffer]:
    yield data


def _gunzip(data: Buffer) -> Iterator[Buffer]:
    rest: Buffer = data
    while True:
        inflate = zlib.decompressobj(31)
        while not inflate.eof:
            try:
                piece = inflate.decompress(rest, STEP_BYTES)
            except zlib.error as error:
                raise CorruptMessage(f"Gzip cannot be inflated: {error}") from None
            rest = inflate.unconsumed_tail
            if not piece and not rest and not inflate.eof:
                raise CorruptMessage("A gzip stream ends early")
            yield piece
        rest = inflate.unused_data
        if rest[:2] != b"\x1f\x8b":
            return


def _unsnappy(data: Buffer) -> Iterator[Buffer]:
    yield from snappy_blocks(data, INFLATED_BATCH_BYTES_MAX)


def _unlz4(data: Buffer) -> Iterator[Buffer]:
    from lz4.frame import LZ4FrameDecompressor  # noqa: PLC0415

    check_lz4_blocks(data)
    inflate = LZ4FrameDecompressor()
    rest: Buffer = data
    while not inflate.eof:
        try:
            piece = inflate.decompress(rest, STEP_BYTES)
        except RuntimeError as error:
            raise CorruptMessage(f"LZ4 cannot be inflated: {error}") from None
        if inflate.needs_input and not inflate.eof:
            raise CorruptMessage("An LZ4 frame ends early")
        rest = b""
        yield piece


def _unzstd(data: Buffer) -> Iterator[Buffer]:
    from zstandard import ZstdDecompressor, ZstdError  # noqa: PLC0415

    check_zstd_frames_are_whole(memoryview(data))
    with ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        while True:
            try:
                piece = reader.read(STEP_BYTES)
            except ZstdError as error:
                raise CorruptMessage(f"Zstd cannot be inflated: {error}") from None
            if not piece:
                return
            yield piece


_INFLATERS: Final[tuple[Callable[[Buffer], Iterator[Buffer]], ...]] = (
    _store,
    _gunzip,
    _unsnappy,
    _unlz4,
    _unzstd,
)
