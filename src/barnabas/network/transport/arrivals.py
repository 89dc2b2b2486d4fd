"""Arrival times of requests: when their bytes reached this machine, not when the loop came to read them.

A busy loop leaves bytes in the kernel, and a client waits for that as for everything else. Linux stamps each
TCP segment on arrival (SO_TIMESTAMPNS) and returns the stamp of the last byte that a receive took. A stamped
receive costs a microsecond more. So a connection asks for it only if other work has had the loop for a while
since its last turn. A connection that is served turn after turn waits for nothing but itself.

Some bytes have no stamp: on another system, or in the buffers of the TLS library. Their arrival lies between
two known moments. The loop has been busy since the first, and reads at the second. The middle is the
estimate.

The stamp is wall time, which may be set meanwhile: `waited_ms` is a distance that the connection bounds by
the moment of its last read. Bytes of one receive share one arrival, that of the last.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Final, Protocol

from barnabas.core.clock import since_wall_ms

UNKNOWN_MS: Final = -1.0
_SO_TIMESTAMPNS: Final = 35
"""On Linux; Python has no name for it."""
_TIMESPEC: Final = struct.Struct("ll")
ANCILLARY_BYTES: Final = 64
"""Room for the stamp and its header."""

Ancillary = Sequence[tuple[int, int, bytes]]


class StampedTransport(Protocol):
    def recv_stamped(self, buffer: memoryview, count: int, /) -> tuple[int, float]:
        """`recv_into`, and the milliseconds for which the received bytes have waited in the kernel."""
        ...


class StampedReceive:
    """Byte source of one receive that also asks how long the bytes have waited. All connections of a loop
    share one."""

    __slots__ = ("transport", "waited_ms")

    transport: StampedTransport

    def __init__(self) -> None:
        self.waited_ms = UNKNOWN_MS

    def recv_into(self, buffer: memoryview, count: int = 0, /) -> int:
        received, self.waited_ms = self.transport.recv_stamped(buffer, count)
        return received


def stamp_arrivals(listening: socket.socket) -> None:
    """Have the kernel stamp the bytes of each connection that this socket accepts, if it can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            listening.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def waited_ms(ancillary: Ancillary) -> float:
    """Milliseconds since the stamp among these ancillary data; UNKNOWN_MS if there is none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return since_wall_ms(seconds, nanoseconds)
    return UNKNOWN_MS


def peek_waited_ms(sock: socket.socket) -> float:
    """The same of the first unread byte, which stays unread."""
    try:
        _, ancillary, _, _ = socket.socket.recvmsg(sock, 1, ANCILLARY_BYTES, socket.MSG_PEEK)
    except OSError:
        return UNKNOWN_MS
    return waited_ms(ancillary)
