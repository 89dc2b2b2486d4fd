"""Encoder of new records for producers: appends records to the payload of a batch, as fast as Python can.

A record is one `join` of ready-made pieces. The varints of small numbers come from a table, so that no loop
runs for a record of ordinary size. `builder` does the same work for any offset and any control batch; this
module serves records that follow each other without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.records.batch import NO_TIMESTAMP
from barnabas.records.record import HEADER_KEY_ERRORS, Header
from barnabas.records.varint import Buffer, write_varint

RECORD_OVERHEAD_BYTES_MAX: Final = 36
"""Upper bound of the varints and attributes of a record without headers."""
HEADER_OVERHEAD_BYTES_MAX: Final = 10
"""Upper bound of the varints of one header."""

_TABLE_SIZE: Final = 4_096
_NULL: Final = b"\x01"
_ZERO: Final = b"\x00"


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_TABLE: Final[list[bytes]] = [_varint(value) for value in range(_TABLE_SIZE)]


class RecordAppender:
    """Payload of one batch. Timestamps are deltas from that of the first record."""

    __slots__ = ("base_timestamp", "max_timestamp", "payload", "record_count")

    def __init__(self) -> None:
        self.payload = bytearray()
        self.record_count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP

    def append(
        self, key: Buffer | None, value: Buffer | None, headers: Sequence[Header], timestamp: int
    ) -> int:
        """Add a record; returns its position in the batch."""
        count = self.record_count
        if count == 0:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:  # noqa: PLR1730 - a call for every record
            self.max_timestamp = timestamp
        delta = timestamp - self.base_timestamp
        time = _TABLE[delta] if 0 <= delta < _TABLE_SIZE else _varint(delta)
        offset = _TABLE[count] if count < _TABLE_SIZE else _varint(count)
        key_length, value_length = _NULL, _NULL
        size = 1 + len(time) + len(offset)
        if key is None:
            key = b""
        else:
            length = len(key)
            key_length = _TABLE[length] if length < _TABLE_SIZE else _varint(length)
            size += length
        if value is None:
            value = b""
        else:
            length = len(value)
            value_length = _TABLE[length] if length < _TABLE_SIZE else _varint(length)
            size += length
        tail = _headers(headers) if headers else _ZERO
        size += len(key_length) + len(value_length) + len(tail)
        total = _TABLE[size] if size < _TABLE_SIZE else _varint(size)
        self.payload += b"".join((total, _ZERO, time, offset, key_length, key, value_length, value, tail))
        self.record_count = count + 1
        return count


def record_bytes_max(key: Buffer | None, value: Buffer | None, headers: Sequence[Header]) -> int:
    """Upper bound of the size of a record."""
    size = RECORD_OVERHEAD_BYTES_MAX
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES_MAX + 4 * len(name)
        if content is not None:
            size += len(content)
    return size


def _headers(headers: Sequence[Header]) -> bytes:
    out = bytearray()
    write_varint(out, len(headers))
    for name, content in headers:
        encoded = name.encode(errors=HEADER_KEY_ERRORS)
        write_varint(out, len(encoded))
        out += encoded
        if content is None:
            out += _NULL
        else:
            write_varint(out, len(content))
            out += content
    return bytes(out)
