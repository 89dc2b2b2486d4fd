"""Partitioner for whole columns, with the rule of `barnabas.client.core.partitioner`.

A row with a key goes to the partition of the key's murmur2 hash, as in every Kafka client. Rows without a key
stick to one partition for a flush and move on with the next: few large batches instead of many small ones. A
`partition` column overrides both.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from barnabas.client.core.partitioner import MULTIPLIER, SEED, SHIFT
from barnabas.records.columnar.varints import Ints

_SEED: Final = np.uint32(SEED)
_MULTIPLIER: Final = np.uint32(MULTIPLIER)
_SHIFT: Final = np.uint32(SHIFT)


def murmur2(keys: Any) -> Ints:
    """Non-negative murmur2 hash of each value of a binary array.

    A round mixes four bytes of every key that has them. The tails of one to three bytes come last.
    """
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    source = keys.buffers()[2]
    data = np.frombuffer(source, np.uint8) if source is not None and source.size else np.zeros(1, np.uint8)
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    with np.errstate(over="ignore"):
        value = _SEED ^ lengths.astype(np.uint32)
        words = lengths >> 2
        rows = np.flatnonzero(words)
        number = 0
        while rows.size:
            at = starts[rows] + 4 * number
            word = data[at].astype(np.uint32)
            for byte in (1, 2, 3):
                word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
            word *= _MULTIPLIER
            word ^= word >> _SHIFT
            word *= _MULTIPLIER
            value[rows] = (value[rows] * _MULTIPLIER) ^ word
            number += 1
            rows = rows[words[rows] > number]
        tails = starts + 4 * words
        for extra in (3, 2, 1):
            rows = np.flatnonzero((lengths & 3) >= extra)
            value[rows] ^= data[tails[rows] + extra - 1].astype(np.uint32) << np.uint32(8 * (extra - 1))
        rows = np.flatnonzero(lengths & 3)
        value[rows] *= _MULTIPLIER
        value ^= value >> np.uint32(13)
        value *= _MULTIPLIER
        value ^= value >> np.uint32(15)
    return (value & np.uint32(0x7FFF_FFFF)).astype(np.int64)


def assign(keys: Any | None, rows: int, partitions: int, sticky: int) -> Ints:
    """Partition of each row; rows without a key go to `sticky`."""
    if keys is None or keys.null_count == len(keys):
        return np.full(rows, sticky, np.int64)
    chosen = murmur2(keys) % partitions
    if keys.null_count:
        chosen[keys.is_null().to_numpy(zero_copy_only=False)] = sticky
    return chosen


def as_binary(column: Any) -> pa.Array:
    """Strings as their bytes, without a copy."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    return column.cast(pa.binary()) if column.type != pa.binary() else column
