"""How the bytes of one connection get into and out of its socket: as they are, or through TLS.

A connection and its buffers work on either. Both raise BlockingIOError when nothing has come, and
another OSError when the peer is gone.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.core.metrics import Counter
from barnabas.network.exchange import Part
from barnabas.network.output import Away, Output
from barnabas.network.receive_buffer import ByteSource
from barnabas.network.sockets import SendFile


class AnswerOutput(Protocol):
    """Answers on their way into the socket; `output` tells what the members mean."""

    memory_bytes: int
    away: Away | None

    @property
    def empty(self) -> bool: ...
    @property
    def congested(self) -> bool: ...
    def put(self, parts: Sequence[Part]) -> None: ...
    def flush(self) -> bool: ...
    def discard(self) -> None: ...


class Transport(ByteSource, Protocol):
    descriptor: int

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        """Call this whenever there is something to read, until `stop_reading`."""
        ...

    def stop_reading(self) -> None: ...
    def make_output(self, sent_total: Counter) -> AnswerOutput: ...
    def close(self) -> None: ...


class PlainTransport:
    """A socket as it is: what a request needs of it are the socket's own methods."""

    __slots__ = ("_loop", "_send_file", "_socket", "close", "descriptor", "recv_into")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, send_file: SendFile) -> None:
        self._socket = sock
        self._loop = loop
        self._send_file = send_file
        self.descriptor = sock.fileno()
        self.recv_into = sock.recv_into
        self.close = sock.close

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        self._loop.add_reader(self.descriptor, on_readable)

    def stop_reading(self) -> None:
        self._loop.remove_reader(self.descriptor)

    def make_output(self, sent_total: Counter) -> AnswerOutput:
        return Output(self._socket, sent_total, self._send_file)
