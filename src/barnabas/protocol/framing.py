"""Frames: a signed 32-bit size, big endian, and that many bytes.

The size is checked before anything is allocated for it. Splitting leaves the bytes where they
are: a frame is a slice of the receive buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.schema import Part

SIZE_BYTES = 4

_SIZE = struct.Struct(">i")


def read_frame_size(buffer: memoryview, position: int, size_max: int) -> int | None:
    """The size that stands at `position`, or None if its four bytes are not all there yet."""
    if len(buffer) - position < SIZE_BYTES:
        return None
    (size,) = _SIZE.unpack_from(buffer, position)
    if not 0 <= size <= size_max:
        raise MalformedMessage(f"a frame of {size} bytes: at most {size_max} are allowed")
    return int(size)


def split_frames(buffer: memoryview, size_max: int) -> Iterator[memoryview]:
    """The whole frames at the start of `buffer`, without their sizes and without copying.

    What remains after the last one is an incomplete frame; with its size it begins where the
    last frame ended.
    """
    position = 0
    while (size := read_frame_size(buffer, position, size_max)) is not None:
        end = position + SIZE_BYTES + size
        if end > len(buffer):
            return
        yield buffer[position + SIZE_BYTES : end]
        position = end


def frame_prefix(parts: Iterable[Part]) -> bytes:
    """The four bytes that go before these parts on the wire."""
    return _SIZE.pack(sum(map(len, parts)))
