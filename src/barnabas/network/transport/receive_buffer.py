"""Receive buffers between the socket and `dispatch`.

There are three kinds, so that small requests are never copied and large ones hardly ever:

1. The *chunk*, one for the whole loop. A read goes there, and complete frames are dispatched
   in place. Nothing stays in it after a turn, so a thousand idle connections hold no buffer.
2. A *remainder* (the start of a frame, or complete frames that must wait) is copied out of the
   chunk. A short one goes back to the front of the chunk before the next read.
3. A *large buffer* takes over when much of a frame has arrived and more is missing: the rest
   is received in place. Large buffers are reused, because touching fresh pages costs as
   much as receiving into them. A connection whose last frame was large starts in one.

A frame that outlives its turn is *kept*: its large buffer is then not reused, or it is copied
out of the chunk. Or it is *lent*: its large buffer is reused once it has been given back.

Invariant: no allocation exceeds the bytes received by a factor of more than `GROWTH` (rounded up to whole
chunks). The declared length of a frame only ever lowers it.
"""

from __future__ import annotations

import mmap
from struct import Struct
from typing import Final, Protocol

from barnabas.core.limits import RECEIVE_CHUNK_BYTES

SIZE: Final = Struct(">i")
SIZE_BYTES: Final = 4

LARGE_BYTES: Final = 64 * 1024
"""From this size on, copying a remainder back and forth costs more than a buffer of its own."""

GROWTH: Final = 8
POOLED_BYTES_MAX: Final = 16 * 1024 * 1024

MAPPED_BYTES_MIN: Final = 1024 * 1024
"""From this size on a buffer is a mapping of its own. Its pages are allocated one by one as bytes are
received, and it grows in place. Clearing and copying a hundred megabytes would block the loop."""

RECEIVED_AT_ONCE_MAX: Final = 256 * 1024
"""Bytes that one turn takes from a socket into a large buffer."""


class ByteSource(Protocol):
    """A socket, or TLS on one."""

    def recv_into(self, buffer: memoryview, count: int = 0, /) -> int:
        """Receive at most `count` bytes, where more is known to come (0: as many as fit, possibly all). 0 is
        the end of the stream."""
        ...


class LoopBuffers:
    """Buffers that the connections of one loop share: the chunk, and free large buffers."""

    __slots__ = ("_free", "_free_bytes", "chunk")

    def __init__(self, chunk_bytes: int = RECEIVE_CHUNK_BYTES) -> None:
        self.chunk = memoryview(bytearray(chunk_bytes))
        self._free: list[memoryview] = []
        self._free_bytes = 0

    def reuse(self, size: int) -> memoryview | None:
        """A free buffer of at least `size` bytes, the last used if possible: it is still cached."""
        free = self._free
        for index in range(len(free) - 1, -1, -1):
            if len(free[index]) >= size:
                self._free_bytes -= len(free[index])
                return free.pop(index)
        return None

    def take(self, size: int) -> memoryview:
        found = self.reuse(size)
        if found is None:
            unit = len(self.chunk)
            size = -(-size // unit) * unit
            found = memoryview(bytearray(size) if size < MAPPED_BYTES_MIN else _mapped(size))
        return found

    def give_back(self, buffer: memoryview) -> None:
        if len(self.chunk) <= len(buffer) <= POOLED_BYTES_MAX - self._free_bytes:
            self._free.append(buffer)
            self._free_bytes += len(buffer)


def _mapped(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class Loan:
    """A large buffer with frames that are still read."""

    __slots__ = ("_buffers", "_view", "count", "is_left")

    def __init__(self, buffers: LoopBuffers, view: memoryview) -> None:
        self._buffers = buffers
        self._view = view
        self.count = 0
        self.is_left = False
        """No more is received into it: it is free with the last frame that is given back."""

    def give_back(self) -> None:
        self.count -= 1
        if self.is_left and self.count == 0:
            self._buffers.give_back(self._view)


class ReceiveBuffer:
    """`view[start:end]` has arrived and is not yet dispatched.

    One turn: `receive`, look at the window, `settle` with the position reached. Between turns the window is
    never in the chunk.
    """

    __slots__ = ("_buffers", "_expected", "_kept", "_large", "_loan", "end", "start", "view")

    def __init__(self, buffers: LoopBuffers) -> None:
        self._buffers = buffers
        self._expected = 0
        self._large = False
        self._kept = False
        self._loan: Loan | None = None
        self.view = buffers.chunk
        self.start = 0
        self.end = 0

    def receive(self, source: ByteSource) -> int:
        """One `recv`: the number of bytes, 0 at the end of the stream. An error changes nothing."""
        held = self.end - self.start
        chunk = self._buffers.chunk
        if held == 0:
            if self._expected and (large := self._buffers.reuse(self._expected)) is not None:
                return self._receive_expected(source, large)
            count = source.recv_into(chunk)
        elif held < LARGE_BYTES:
            chunk[:held] = self.view[self.start : self.end]
            count = source.recv_into(chunk[held:], len(chunk) - held)
            self._leave_large()
        else:
            return self._receive_rest(source, held)
        self.view, self.start, self.end = chunk, 0, held + count
        return count

    def _receive_expected(self, source: ByteSource, large: memoryview) -> int:
        """Receive no more than a frame like the last one, so that equal frames leave no remainder to move."""
        self.view, self._large = large, True
        count = 0
        try:
            count = self.end = source.recv_into(large, self._expected)
        finally:
            if count == 0:
                self._leave_large()
        return count

    def _receive_rest(self, source: ByteSource, held: int) -> int:
        """Receive up to the end of the frame and no further, so that the next frame starts a buffer."""
        needed = SIZE_BYTES + SIZE.unpack_from(self.view, self.start)[0]
        if self.end == len(self.view) or not self._large:
            capacity = min(needed, GROWTH * held)
            if not self._stretch(capacity):
                self._move(capacity, held)
        until = min(self.start + needed, self.end + RECEIVED_AT_ONCE_MAX)
        room = self.view[self.end : until]
        count = source.recv_into(room, len(room))
        self.end += count
        return count

    def _stretch(self, capacity: int) -> bool:
        """Grow the buffer in place, if possible."""
        mapping = self.view.obj
        if not isinstance(mapping, mmap.mmap) or self.start or self._kept or self._loan is not None:
            return False
        self.view.release()
        try:
            mapping.resize(capacity)
        except (BufferError, OSError, SystemError):  # a view is still held, or the system cannot
            return False
        finally:
            self.view = memoryview(mapping)
        return True

    def _move(self, capacity: int, held: int) -> None:
        grown = self._buffers.take(capacity)
        grown[:held] = self.view[self.start : self.end]
        self._leave_large()
        self.view, self.start, self.end, self._large = grown, 0, held, True

    def settle(self, position: int, last_frame_bytes: int) -> None:
        """End a turn: the bytes before `position` are dispatched, the last frame had this size (0: there was
        none)."""
        if last_frame_bytes:
            self._expected = last_frame_bytes if last_frame_bytes >= LARGE_BYTES else 0
        if position == self.end:
            if self._large:
                self._leave_large()
            self.view, self.start, self.end = self._buffers.chunk, 0, 0
        elif self.view is self._buffers.chunk:
            self.start = position
            self._leave_chunk()
        else:
            self.start = position

    def _leave_chunk(self) -> None:
        held = self.end - self.start
        if held >= LARGE_BYTES:
            needed = SIZE_BYTES + SIZE.unpack_from(self.view, self.start)[0]
            if needed > held:
                self._move(min(needed, GROWTH * held), held)
                return
        self.view, self.start, self.end = memoryview(bytearray(self.view[self.start : self.end])), 0, held

    def keep(self, frame: memoryview) -> memoryview:
        """The bytes of `frame`, a piece of the window, for as long as the result is referenced."""
        if self.view is self._buffers.chunk:
            return memoryview(bytearray(frame))
        self._kept = True
        return frame

    def lend(self) -> Loan | None:
        """Keep the dispatched frame in place until it is given back; None if that is not possible."""
        if self.view is self._buffers.chunk:
            return None
        loan = self._loan
        if loan is None:
            loan = Loan(self._buffers, self.view)
            if self._large:
                self._loan = loan
        loan.count += 1
        return loan

    def release(self) -> None:
        """Free the buffers of a closed connection."""
        self._leave_large()
        self.view, self.start, self.end = self._buffers.chunk, 0, 0

    def _leave_large(self) -> None:
        if self._large:
            self._large = False
            loan, self._loan = self._loan, None
            if not self._kept:
                if loan is None or loan.count == 0:
                    self._buffers.give_back(self.view)
                else:
                    loan.is_left = True
            self._kept = False
            self.view = self._buffers.chunk
