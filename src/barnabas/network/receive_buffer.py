"""Where the bytes of one connection lie between the socket and `dispatch`.

Three places, chosen so that small requests are never copied and large ones hardly ever:

1. The *chunk*, one for the whole loop. A read goes there, and whole frames are dispatched
   where they lie. Nothing stays in it after a turn, so a thousand idle connections hold no
   buffer at all.
2. A *remainder* (the start of a frame, or whole frames that must wait) is copied out of the
   chunk. A short one goes back to the front of the chunk before the next read.
3. A *large buffer* takes over when much of a frame has come and more is missing: the rest is
   received to its place. Large buffers are reused, because touching fresh pages costs as
   much as receiving into them. A connection whose last frame was large starts in one.

A frame that cannot be dealt with in the turn in which it is dispatched is *kept*: its large
buffer is then not reused, or it is copied out of the chunk. Or it is *lent*: its large buffer is
reused once it has been given back.

Invariant: no allocation exceeds the bytes received by a factor of more than `GROWTH`
(rounded up to whole chunks); the declared length of a frame only ever lowers it.
"""

from __future__ import annotations

import mmap
from struct import Struct
from typing import Final, Protocol

from barnabas.core.limits import RECEIVE_CHUNK_BYTES

SIZE: Final = Struct(">i")
SIZE_BYTES: Final = 4

LARGE_BYTES: Final = 64 * 1024
"""From here on, copying a remainder back and forth costs more than a buffer of its own."""

GROWTH: Final = 8
POOLED_BYTES_MAX: Final = 16 * 1024 * 1024

MAPPED_BYTES_MIN: Final = 1024 * 1024
"""From here on a buffer is a mapping of its own: its pages come one by one as bytes are received, and it
grows where it is. To clear and to copy a hundred megabytes would keep everybody waiting."""

RECEIVED_AT_ONCE_MAX: Final = 256 * 1024
"""What one turn takes from a socket into a large buffer."""


class ByteSource(Protocol):
    """A socket, or TLS on one."""

    def recv_into(self, buffer: memoryview, count: int = 0, /) -> int:
        """At most `count` bytes, of which there is known to be more to come (0: as many as fit, which may be
        all there is); 0 is the end of the stream."""
        ...


class LoopBuffers:
    """What the connections of one loop share: the chunk, and large buffers that are free."""

    __slots__ = ("_free", "_free_bytes", "chunk")

    def __init__(self, chunk_bytes: int = RECEIVE_CHUNK_BYTES) -> None:
        self.chunk = memoryview(bytearray(chunk_bytes))
        self._free: list[memoryview] = []
        self._free_bytes = 0

    def reuse(self, size: int) -> memoryview | None:
        """A free buffer of at least `size` bytes, the one used last if possible: it is still cached."""
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
    """A large buffer that holds frames which somebody still reads."""

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
    """`view[start:end]` is what has come and has not been dispatched.

    One turn: `receive`, look at the window, `settle` with the position reached. Between turns
    the window is never in the chunk.
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
        """One `recv`: how many bytes came, 0 at the end of the stream. When it raises, nothing changed."""
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
        """No more than a frame like the last one, so that equal frames leave no remainder to move."""
        self.view, self._large = large, True
        count = 0
        try:
            count = self.end = source.recv_into(large, self._expected)
        finally:
            if count == 0:
                self._leave_large()
        return count

    def _receive_rest(self, source: ByteSource, held: int) -> int:
        """Up to the end of the frame and no further, so that the next frame starts a buffer."""
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
        """Make the buffer larger where it is, if it can be."""
        mapping = self.view.obj
        if not isinstance(mapping, mmap.mmap) or self.start or self._kept or self._loan is not None:
            return False
        self.view.release()
        try:
            mapping.resize(capacity)
        except (BufferError, OSError, SystemError):  # somebody holds a view, or the system cannot
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
        """End a turn: all before `position` is dispatched, the last frame had this size (0: none was)."""
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
        """The bytes of `frame`, a piece of the window, for as long as anybody holds the result."""
        if self.view is self._buffers.chunk:
            return memoryview(bytearray(frame))
        self._kept = True
        return frame

    def lend(self) -> Loan | None:
        """The frame that is being dispatched stays where it is until it is given back; None if it cannot."""
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
        """The connection is gone."""
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
