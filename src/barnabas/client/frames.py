"""Frames out of a byte stream, each in memory of its own.

Small answers arrive many at a time in one scratch buffer and are copied out of it. One that
does not fit what has arrived gets its memory at once, and the rest of it is received straight
into that: a large fetch answer is copied once, by the kernel. That memory is used again when the
receiver says that it is done with it: to touch fresh pages costs as much as to receive into them.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

SIZE = struct.Struct(">i")
SCRATCH_BYTES = 64 * 1024
FRAME_BYTES_MAX = 512 * 1024 * 1024
"""An answer that claims to be larger is not one."""
SPARE_BYTES_MAX = 16 * 1024 * 1024


class FrameProtocol(asyncio.BufferedProtocol):
    """Calls `on_frame` with the body of each frame and `on_closed` at the end, or when there is no
    way to go on. `on_frame` says whether the memory may be used again, so that nothing of it is held."""

    def __init__(
        self, on_frame: Callable[[memoryview], bool], on_closed: Callable[[BaseException | None], None]
    ) -> None:
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._filled = 0
        self._body: memoryview | None = None
        self._body_filled = 0
        self._spare: memoryview | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.closed = asyncio.Event()

    async def writable(self) -> None:
        """Wait until the peer has taken enough of what was written."""
        await self._writable.wait()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._writable.set()
        self.closed.set()
        self._on_closed(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the interface's name
        if self._body is not None:
            return self._body[self._body_filled :]
        return self._scratch[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        body = self._body
        if body is None:
            self._filled += nbytes
            self._take_frames()
            return
        self._body_filled += nbytes
        if self._body_filled == len(body):
            self._body = None
            if self._on_frame(body) and len(body) <= SPARE_BYTES_MAX:
                self._keep(body)

    def _take_frames(self) -> None:
        scratch, filled, position = self._scratch, self._filled, 0
        self._filled = 0
        while filled - position >= SIZE.size:
            (size,) = SIZE.unpack_from(scratch, position)
            position += SIZE.size
            if not 0 <= size <= FRAME_BYTES_MAX:
                self._on_closed(ValueError(f"it sent a frame of {size} bytes"))
                return
            if position + size > filled:
                self._begin_body(size, scratch[position:filled])
                return
            self._on_frame(memoryview(bytearray(scratch[position : position + size])))
            position += size
        rest = bytes(scratch[position:filled])
        scratch[: len(rest)] = rest
        self._filled = len(rest)

    def _keep(self, body: memoryview) -> None:
        """The larger of two buffers serves more frames."""
        whole = memoryview(body.obj)
        if self._spare is None or len(self._spare) < len(whole):
            self._spare = whole

    def _begin_body(self, size: int, arrived: memoryview) -> None:
        spare = self._spare
        if spare is not None and size <= len(spare):
            self._spare = None
            self._body = spare[:size]
        else:
            self._body = memoryview(bytearray(size))
        self._body[: len(arrived)] = arrived
        self._body_filled = len(arrived)
