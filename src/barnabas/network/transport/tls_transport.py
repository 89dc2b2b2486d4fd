"""TLS transport: a non-blocking `SSLSocket` on the accepted socket.

TLS comes in records of at most 16 KB. One read yields one of them, so a turn reads several. When the buffer
is full, the rest of a record stays in the TLS library, where the poll does not see it. Then, and when the end
of the stream follows data, the loop is asked for another turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable

from barnabas.core.reporting.metrics import Counter
from barnabas.network.transport.arrivals import peek_waited_ms
from barnabas.network.transport.tls_output import TlsOutput
from barnabas.network.transport.transport import AnswerOutput

RECORD_BYTES_MAX = 16 * 1024
RECORDS_AT_ONCE_MAX = 256
"""Records of one turn: a record may hold a single byte, and all of them may have arrived."""
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsTransport:
    __slots__ = ("_ended", "_has_turn", "_loop", "_on_readable", "_tls", "descriptor")

    def __init__(self, tls: ssl.SSLSocket, loop: asyncio.AbstractEventLoop) -> None:
        self._tls = tls
        self._loop = loop
        self._on_readable: Callable[[], None] | None = None
        self._has_turn = False
        self._ended = False
        self.descriptor = tls.fileno()

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        self._on_readable = on_readable
        self._loop.add_reader(self.descriptor, on_readable)
        self._ask_for_turn()

    def stop_reading(self) -> None:
        self._on_readable = None
        self._loop.remove_reader(self.descriptor)

    def _ask_for_turn(self) -> None:
        """Schedule a turn for bytes that the poll does not see."""
        if not self._has_turn and self._on_readable is not None and (self._ended or self._tls.pending()):
            self._has_turn = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._has_turn = False
        if self._on_readable is not None:
            self._on_readable()
            self._ask_for_turn()

    def recv_stamped(self, buffer: memoryview, count: int, /) -> tuple[int, float]:
        waited_ms = peek_waited_ms(self._tls)
        return self.recv_into(buffer, count), waited_ms

    def recv_into(self, buffer: memoryview, count: int = 0, /) -> int:
        room = count or len(buffer)
        read, received = self._tls.recv_into, 0
        try:
            for _ in range(RECORDS_AT_ONCE_MAX):
                some = read(buffer[received:room])
                received += some
                if not some:
                    self._ended = received > 0
                    break
                if received == room:
                    break
                if not count and some < RECORD_BYTES_MAX and not self._tls.pending():
                    # Most likely all there is: a check would cost an exception. In the middle of a frame it
                    # is not: librdkafka makes a TLS record of each of its own records.
                    return received
        except _WAITS:
            if not received:
                raise BlockingIOError from None
        except OSError:
            if not received:
                raise
            self._ended = True
        self._ask_for_turn()
        return received

    def make_output(self, sent_total: Counter) -> AnswerOutput:
        return TlsOutput(self._tls, sent_total)

    def close(self) -> None:
        """Send the TLS close alert, as far as the socket takes it, so that the end is no truncation."""
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        self._tls.close()
