"""Frames out of a byte stream, each in memory of its own.

Small answers arrive many at a time in one scratch buffer and are copied out of it. One that
does not fit what has arrived gets its memory at once, and the rest of it is received straight
into that: a large fetch answer is copied once, by the kernel. That memory is used again when the
receiver says that it is done with it: to touch fresh pages costs as much as to receive into them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

SIZE = struct.Struct(">i")
SCRATCH_BYTES = 64 * 1024
FRAME_BYTES_MAX = 512 * 1024 * 1024
"""An answer that claims to be larger is not one."""
SPARE_BYTES_MAX = 16 * 1024 * 1024

Allocate = Callable[[int], memoryview]


def zeroed(size: int) -> memoryview:
    return memoryview(bytearray(size))


class BrokenStream(Exception):
    """What came are not the answers to what was asked: the connection is useless, and this says why."""


class FrameBuffer:
    """Receive into `get_buffer()`, then take the frames that `received` finds whole."""

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
        """The bodies of the frames that are whole now that `size` bytes more are in the buffer; BrokenStream
        when there is no way to go on."""
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
        """Nobody will hold anything of this frame when more is received. The larger of two buffers serves
        more frames."""
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
                raise BrokenStream(f"it sent a frame of {size} bytes")
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
