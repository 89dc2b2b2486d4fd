"""Transport of one connection's bytes: plain, or through TLS.

A connection and its buffers work on either. Both raise BlockingIOError when nothing has arrived, and another
OSError when the client is gone.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.core.reporting.metrics import Counter
from barnabas.network.transport.arrivals import ANCILLARY_BYTES, StampedTransport, waited_ms
from barnabas.network.transport.exchange import Part
from barnabas.network.transport.output import Away, Output
from barnabas.network.transport.receive_buffer import ByteSource
from barnabas.network.transport.sockets import SendFile


class AnswerOutput(Protocol):
    """Responses on their way into the socket; `output` explains the members."""

    memory_bytes: int
    away: Away | None

    @property
    def empty(self) -> bool: ...
    @property
    def congested(self) -> bool: ...
    def put(self, parts: Sequence[Part]) -> None: ...
    def flush(self) -> bool: ...
    def discard(self) -> None: ...


class Transport(ByteSource, StampedTransport, Protocol):
    descriptor: int

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` whenever there is something to read, until `stop_reading`."""
        ...

    def stop_reading(self) -> None: ...
    def make_output(self, sent_total: Counter) -> AnswerOutput: ...
    def close(self) -> None: ...


class PlainTransport:
    """A plain socket: requests use the socket's own methods."""

    __slots__ = ("_loop", "_send_file", "_socket", "close", "descriptor", "recv_into")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, send_file: SendFile) -> None:
        self._socket = sock
        self._loop = loop
        self._send_file = send_file
        self.descriptor = sock.fileno()
        self.recv_into = sock.recv_into
        self.close = sock.close

    def recv_stamped(self, buffer: memoryview, count: int, /) -> tuple[int, float]:
        room = buffer[:count] if count else buffer
        received, ancillary, _, _ = self._socket.recvmsg_into((room,), ANCILLARY_BYTES)
        return received, waited_ms(ancillary)

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        self._loop.add_reader(self.descriptor, on_readable)

    def stop_reading(self) -> None:
        self._loop.remove_reader(self.descriptor)

    def make_output(self, sent_total: Counter) -> AnswerOutput:
        return Output(self._socket, sent_total, self._send_file)
