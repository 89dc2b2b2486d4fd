"""Splitter of a byte stream into frames, each in memory of its own.

Small answers arrive together in one scratch buffer and are copied out of it. A frame that does not fit gets
its memory at once, and the rest is received straight into it: the kernel copies a large Fetch response once.
The memory is used again when the receiver gives it back: touching fresh pages costs as much as receiving.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

SIZE = struct.Struct(">i")
SCRATCH_BYTES = 64 * 1024
FRAME_BYTES_MAX = 512 * 1024 * 1024
"""A larger size prefix means a broken stream."""
SPARE_BYTES_MAX = 16 * 1024 * 1024

Allocate = Callable[[int], memoryview]


def zeroed(size: int) -> memoryview:
    return memoryview(bytearray(size))


class BrokenStream(Exception):
    """The bytes are not the answers to the requests: the connection is useless."""


class FrameBuffer:
    """Buffer for one connection: receive into `get_buffer()`, then take the frames from `received`."""

    def __init__(self, allocate: Allocate = zeroed) -> None:
        self._allocate = allocate
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._filled = 0
        self._body: memoryview | None = None
        self._body_filled = 0
        self._spare: memoryview | None = None

    def get_buffer(self) -> memoryview:
        if self._body is not None:
            return self._body[self._body_filled :]
        return self._scratch[self._filled :]

    def received(self, size: int) -> Sequence[memoryview]:
        """Bodies of the frames that `size` more bytes complete. BrokenStream ends the stream."""
        body = self._body
        if body is None:
            self._filled += size
            return self._small_frames()
        self._body_filled += size
        if self._body_filled < len(body):
            return ()
        self._body = None
        return (body,)

    def reuse(self, body: memoryview) -> None:
        """Give the memory of a frame back: the caller holds nothing of it. The larger of two buffers is kept,
        because it serves more frames.
        """
        whole = memoryview(body.obj)
        if len(body) <= SPARE_BYTES_MAX and (self._spare is None or len(self._spare) < len(whole)):
            self._spare = whole

    def _small_frames(self) -> list[memoryview]:
        scratch, filled, position = self._scratch, self._filled, 0
        self._filled = 0
        frames: list[memoryview] = []
        while filled - position >= SIZE.size:
            (size,) = SIZE.unpack_from(scratch, position)
            position += SIZE.size
            if not 0 <= size <= FRAME_BYTES_MAX:
                raise BrokenStream(f"the broker sent a frame of {size} bytes")
            if position + size > filled:
                self._begin_body(size, scratch[position:filled])
                return frames
            frames.append(memoryview(bytearray(scratch[position : position + size])))
            position += size
        rest = bytes(scratch[position:filled])
        scratch[: len(rest)] = rest
        self._filled = len(rest)
        return frames

    def _begin_body(self, size: int, arrived: memoryview) -> None:
        spare = self._spare
        if spare is not None and size <= len(spare):
            self._spare = None
            self._body = spare[:size]
        else:
            self._body = self._allocate(size)
        self._body[: len(arrived)] = arrived
        self._body_filled = len(arrived)
