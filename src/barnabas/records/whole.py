"""A piece of a log without the batch that its end cuts off."""

from __future__ import annotations

import struct

from barnabas.records.batch import LOG_OVERHEAD_BYTES

_LENGTH = struct.Struct(">8xi")


def whole_batches(records: bytes, enough_bytes: int) -> memoryview:
    """The whole batches (or old messages) at the front, up to `enough_bytes` but at least one."""
    end = 0
    while end + LOG_OVERHEAD_BYTES <= len(records):
        (length,) = _LENGTH.unpack_from(records, end)
        following = end + LOG_OVERHEAD_BYTES + length
        if length <= 0 or following > len(records) or (end and following > enough_bytes):
            break
        end = following
    return memoryview(records)[:end]
