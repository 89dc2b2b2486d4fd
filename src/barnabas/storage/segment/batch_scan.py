"""Scans over the batches of a segment file.

- `find_batch` and `iterate_headers` read only headers and skip the records. A search starts close to its goal
  and reads a chunk that usually holds it. Its cost does not depend on the length of the log.
- `iterate_valid_batches` reads everything in large chunks and checks each CRC. Recovery uses it.

Messages of the old formats (magic 0 and 1) share the first 17 bytes with a batch of format 2. So they are
measured, checked and skipped in the same way.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.core.ids import NO_OFFSET
from barnabas.core.regions import OpenFile
from barnabas.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    RecordBatch,
)
from barnabas.storage.files.failures import GarbledLog

SEARCH_CHUNK_BYTES: Final = 8 * 1024
WALK_CHUNK_BYTES: Final = 64 * 1024
RECOVERY_CHUNK_BYTES: Final = 4 * 1024 * 1024

LEGACY_BYTES_MIN: Final = LOG_OVERHEAD_BYTES + 14
"""Offset, size, CRC, magic, attributes and the lengths of key and value."""

_PREFIX: Final = struct.Struct(">qiib4x2xi8xq")
"""Base offset, length, leader epoch, magic, last offset delta, max timestamp."""
_SEARCHED: Final = struct.Struct(">qi4xb6xi")
"""Base offset, length, magic, last offset delta."""
_LEGACY: Final = struct.Struct(">qiIbbq")
"""Offset, length, CRC, magic, attributes, timestamp (magic 1)."""


class Header:
    """Fields of a batch that a search needs. An old message has one offset, its last."""

    __slots__ = (
        "base_offset", "last_offset", "leader_epoch", "magic", "max_timestamp", "position", "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        position: int,
        size_bytes: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        magic: int,
        leader_epoch: int,
    ) -> None:
        self.position = position
        self.size_bytes = size_bytes
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.magic = magic
        self.leader_epoch = leader_epoch


def parse_header(chunk: bytes | memoryview, at: int, position: int) -> Header:
    """Parse the header at `at` of `chunk`, which is at `position` of the file."""
    base_offset: int
    length: int
    magic: int
    last_offset_delta: int
    base_offset, length, leader_epoch, magic, last_offset_delta, max_timestamp = _PREFIX.unpack_from(
        chunk, at
    )
    size_bytes = length + LOG_OVERHEAD_BYTES
    if magic == 2:
        if size_bytes < HEADER_BYTES or last_offset_delta < 0 or base_offset < 0:
            raise GarbledLog(f"no batch at position {position}")
        last_offset = base_offset + last_offset_delta
        return Header(position, size_bytes, base_offset, last_offset, max_timestamp, magic, leader_epoch)
    if magic not in (0, 1) or size_bytes < LEGACY_BYTES_MIN or base_offset < 0:
        raise GarbledLog(f"no batch at position {position}")
    timestamp = _LEGACY.unpack_from(chunk, at)[5] if magic == 1 else NO_TIMESTAMP
    return Header(position, size_bytes, base_offset, base_offset, timestamp, magic, NO_LEADER_EPOCH)


def iterate_headers(
    file: OpenFile, position: int, end: int, *, chunk_bytes: int = WALK_CHUNK_BYTES
) -> Iterator[Header]:
    """Headers of all batches from `position` to `end`. Raises GarbledLog at an impossible header."""
    chunk, chunk_at = b"", position
    while end - position >= LEGACY_BYTES_MIN:
        at = position - chunk_at
        # The last message of an old log can be shorter than a header of format 2: pad it with zeros.
        if at + _PREFIX.size > len(chunk):
            chunk, chunk_at, at = file.read_at(position, chunk_bytes), position, 0
            if len(chunk) < _PREFIX.size:
                chunk = chunk.ljust(_PREFIX.size, b"\0")
        header = parse_header(chunk, at, position)
        if position + header.size_bytes > end:
            return
        yield header
        position += header.size_bytes


def find_batch(
    file: OpenFile, position: int, end: int, offset: int, indexed_offset: int = NO_OFFSET
) -> Header | None:
    """Find the first batch from `position` on whose last offset is `offset` or larger.

    An index entry may claim that `indexed_offset` is in a batch at `position` or soon after it. Raises
    GarbledLog if it is not: the wanted batch might be before `position`."""
    unpack = _SEARCHED.unpack_from
    chunk, chunk_at, chunk_end = b"", position, position
    while end - position >= LEGACY_BYTES_MIN:
        if position + _PREFIX.size > chunk_end:
            chunk, chunk_at = file.read_at(position, SEARCH_CHUNK_BYTES), position
            chunk_end = position + len(chunk)
            if len(chunk) < _PREFIX.size:
                chunk = chunk.ljust(_PREFIX.size, b"\0")
        base_offset, length, magic, last_offset_delta = unpack(chunk, position - chunk_at)
        last_offset = base_offset + last_offset_delta if magic == 2 else base_offset
        if last_offset >= indexed_offset >= 0:
            if base_offset > indexed_offset:
                break
            indexed_offset = NO_OFFSET
        # parse_header raises for an impossible header.
        if last_offset >= offset or length < 14 or magic not in (0, 1, 2):
            header = parse_header(chunk, position - chunk_at, position)
            return header if position + header.size_bytes <= end else None
        position += LOG_OVERHEAD_BYTES + length
    if indexed_offset >= 0:
        raise GarbledLog(f"no batch with offset {indexed_offset} at position {position}")
    return None


class LegacyBatch(NamedTuple):
    """Message of format 0 or 1, with the fields that recovery needs."""

    position: int
    size_bytes: int
    base_offset: int
    max_timestamp: int

    @property
    def last_offset(self) -> int:
        return self.base_offset


ValidBatch = tuple[int, RecordBatch | LegacyBatch]
"""Position in the file, and the batch there."""


def iterate_valid_batches(
    file: OpenFile, end: int, position: int = 0, *, chunk_bytes: int = RECOVERY_CHUNK_BYTES
) -> Iterator[ValidBatch]:
    """Read whole batches with a valid CRC, up to the first invalid one."""
    chunk_at = position
    chunk = memoryview(file.read_at(chunk_at, min(chunk_bytes, end - chunk_at)))
    while end - position >= LEGACY_BYTES_MIN:
        at = position - chunk_at
        left = len(chunk) - at
        size_bytes = (
            LOG_OVERHEAD_BYTES + int.from_bytes(chunk[at + 8 : at + 12], signed=True) if left >= 12 else 0
        )
        if left < LEGACY_BYTES_MIN or left < size_bytes:
            wanted = min(max(chunk_bytes, size_bytes), end - position)
            if wanted <= left or (size_bytes and size_bytes > end - position):
                return
            chunk_at = position
            chunk = memoryview(file.read_at(chunk_at, wanted))
            if len(chunk) < wanted:
                return
            continue
        batch = _valid_batch(chunk, at, left, position)
        if batch is None:
            return
        yield position, batch
        position += batch.size_bytes


def _valid_batch(chunk: memoryview, at: int, left: int, position: int) -> RecordBatch | LegacyBatch | None:
    if chunk[at + 16] == 2:
        if left < HEADER_BYTES:
            return None
        batch = RecordBatch(chunk, at)
        valid = HEADER_BYTES <= batch.size_bytes <= left and batch.last_offset_delta >= 0
        return batch if valid and batch.is_valid_crc else None
    offset, length, crc, magic, _, timestamp = _LEGACY.unpack_from(chunk, at)
    size_bytes = length + LOG_OVERHEAD_BYTES
    if magic not in (0, 1) or not LEGACY_BYTES_MIN <= size_bytes <= left:
        return None
    if zlib.crc32(chunk[at + 16 : at + size_bytes]) != crc:
        return None
    return LegacyBatch(position, size_bytes, offset, timestamp if magic == 1 else NO_TIMESTAMP)
