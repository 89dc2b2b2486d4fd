"""Zigzag varints, a whole column at a time.

`read` decodes one varint at each of many positions in one buffer; `write` encodes many values. One round of
array operations handles one byte of every varint. Nearly all varints have one or two bytes, so one or two
rounds suffice. Only the rows that need it take part in a further round.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from barnabas.core.errors import InvalidRecord

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_SEVEN_BITS: Final = np.uint8(0x7F)
VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10


def read(data: Bytes, at: Ints, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Ints, Ints]:
    """Values at the positions `at`, and the positions after them."""
    try:
        byte = data[at]
        value = (byte & _SEVEN_BITS).astype(np.uint64)
        after = at + 1
        rest = np.flatnonzero(byte > 127)
        shift = 7
        if rest.size == at.size and rest.size:
            # All rows continue: no selection is needed.
            byte = data[after]
            value |= (byte & _SEVEN_BITS).astype(np.uint64) << np.uint64(shift)
            after += 1
            shift += 7
            rest = np.flatnonzero(byte > 127)
        while rest.size:
            if shift >= 7 * bytes_max:
                raise InvalidRecord(f"A varint is longer than {bytes_max} bytes")
            byte = data[after[rest]]
            value[rest] |= (byte & _SEVEN_BITS).astype(np.uint64) << np.uint64(shift)
            after[rest] += 1
            shift += 7
            rest = rest[byte > 127]
    except IndexError:
        raise InvalidRecord("A varint runs past the end of its buffer") from None
    if bytes_max == VARINT_BYTES_MAX and shift > 28:
        value &= np.uint64(0xFFFF_FFFF)
    half: Ints = (value >> np.uint64(1)).view(np.int64)
    sign: Ints = -(value & np.uint64(1)).view(np.int64)
    return half ^ sign, after


def sizes(values: Any) -> Ints:
    """Encoded size of each value in bytes."""
    folded = _zigzag(values)
    size: Ints = np.ones(folded.shape, np.int64)
    bound = 1 << 7
    while bound < 1 << 64 and (larger := folded >= np.uint64(bound)).any():
        size += larger
        bound <<= 7
    return size


def write(out: Bytes, at: Ints, values: Any) -> Ints:
    """Write each value at its position in `out`; returns the positions after them."""
    folded = _zigzag(values)
    if not folded.size:
        return at
    after = at + 1
    rest = np.flatnonzero(folded > np.uint64(127))
    if not rest.size:
        out[at] = folded.astype(np.uint8)
        return after
    low = (folded & np.uint64(0x7F)).astype(np.uint8)
    low[rest] |= np.uint8(0x80)
    out[at] = low
    folded = folded[rest] >> np.uint64(7)
    while rest.size:
        more = folded > np.uint64(127)
        byte = (folded & np.uint64(0x7F)).astype(np.uint8)
        byte[more] |= np.uint8(0x80)
        out[after[rest]] = byte
        after[rest] += 1
        rest = rest[more]
        folded = folded[more] >> np.uint64(7)
    return after


def _zigzag(values: Any) -> npt.NDArray[np.uint64]:
    signed = np.asarray(values, np.int64)
    folded: npt.NDArray[np.uint64] = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    return folded
