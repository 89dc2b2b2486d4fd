"""Responses on their way through TLS, with the members of `output.Output`.

Everything is encrypted in memory, so file regions are read. The next bounded piece is read when the socket
has taken the previous one. A piece that the socket did not take is offered again unchanged: the TLS library
has begun to send it.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Sequence

from barnabas.core.limits import OUTPUT_CONGESTED_BYTES, SEND_PER_TURN_BYTES_MAX
from barnabas.core.regions import FileRegion
from barnabas.core.reporting.metrics import Counter
from barnabas.network.transport.exchange import Part
from barnabas.network.transport.output import QUEUED_PARTS_MAX, Away, RegionCutShort, read_part
from barnabas.network.transport.receive_buffer import SIZE, SIZE_BYTES

PIECE_BYTES = 256 * 1024
"""Bytes per call of OpenSSL, and so the memory of a connection whose client does not read.

OpenSSL cuts them into records of 16 KB. A megabyte costs a tenth less than in pieces of 64 KB, because there
are fewer calls.
"""


class TlsOutput:
    __slots__ = ("_piece", "_queue", "_region_read", "_sent_total", "_tls", "away", "memory_bytes")

    def __init__(self, tls: ssl.SSLSocket, sent_total: Counter) -> None:
        self._tls = tls
        self._sent_total = sent_total
        self._queue: deque[Part] = deque()
        self._piece: bytes | bytearray | memoryview = b""
        self._region_read = 0
        self.away: Away | None = None
        self.memory_bytes = 0

    @property
    def empty(self) -> bool:
        return not self._queue and not self._piece

    @property
    def congested(self) -> bool:
        return self.memory_bytes > OUTPUT_CONGESTED_BYTES or len(self._queue) > QUEUED_PARTS_MAX

    def put(self, parts: Sequence[Part]) -> None:
        size = file_bytes = 0
        for part in parts:
            size += len(part)
            if isinstance(part, FileRegion):
                file_bytes += len(part)
        self._queue.append(SIZE.pack(size))
        self._queue.extend(parts)
        self.memory_bytes += SIZE_BYTES + size - file_bytes

    def flush(self) -> bool:
        """Send what the socket takes now, within one turn's share; True when nothing is left."""
        brought_in = None
        if self.away is not None:
            brought_in, self.away = self.away.region, None
        share = SEND_PER_TURN_BYTES_MAX
        while share > 0:
            if not self._piece:
                if not self._queue:
                    return True
                self._piece = self._next_piece(brought_in)
                if not self._piece and self.away is not None:
                    return False
                continue
            try:
                sent = self._tls.send(self._piece)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False
            self._piece = memoryview(self._piece)[sent:] if sent < len(self._piece) else b""
            self.memory_bytes -= sent
            self._sent_total.value += sent
            share -= sent
        return self.empty

    def _next_piece(self, brought_in: FileRegion | None) -> bytes | bytearray | memoryview:
        """Next bytes in memory; nothing if the next region is away."""
        queue, room = self._queue, PIECE_BYTES
        taken: list[bytes | bytearray | memoryview] = []
        some: bytes | bytearray | memoryview | None
        while queue and room > 0:
            head = queue[0]
            if isinstance(head, FileRegion):
                some = self._read(head, room, brought_in)
                if some is None:
                    break
            elif len(head) > room:
                view = memoryview(head)
                some, queue[0] = view[:room], view[room:]
            else:
                some = head
                queue.popleft()
            taken.append(some)
            room -= len(some)
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def _read(self, region: FileRegion, room: int, brought_in: FileRegion | None) -> bytes | bytearray | None:
        begun = self._region_read
        wanted = min(room, region.length - begun)
        data = read_part(region, region.position + begun, wanted, is_brought_in=region is brought_in)
        if data is None:
            self.away = Away(region, begun, min(region.length - begun, SEND_PER_TURN_BYTES_MAX))
            return None
        if len(data) < wanted:
            raise RegionCutShort(f"the file has {len(data)} of {wanted} bytes")
        self.memory_bytes += wanted
        self._region_read += wanted
        if self._region_read == region.length:
            self._queue.popleft()
            self._region_read = 0
        return data

    def discard(self) -> None:
        """Release everything, the files too."""
        self._queue.clear()
        self._piece = b""
        self.away = None
        self._region_read = self.memory_bytes = 0
