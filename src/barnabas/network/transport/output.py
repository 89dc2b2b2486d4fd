"""Responses on their way into a socket.

Memory goes by `send` (small parts joined into one) or `sendmsg`, file regions by `sendfile`: their bytes
never enter Python. A header before a region is sent with MSG_MORE so that it shares a packet with the data. A
frame with a small region is the exception. Reading it and sending once is cheaper than three system calls,
and the client wakes up once. Bytes that the socket does not take stay here and are offered again when it is
writable; the connection registers for that. A region that would block on the disk is `away`, and the
connection has it read.

Only memory counts against the limits. A queued region costs an open file and nothing else.

Responses through TLS leave by `tls_output`, which has the same members.
"""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from barnabas.core.limits import OUTPUT_CONGESTED_BYTES, SEND_PER_TURN_BYTES_MAX
from barnabas.core.regions import FileRegion
from barnabas.core.reporting.metrics import Counter
from barnabas.network.transport.exchange import Part
from barnabas.network.transport.receive_buffer import SIZE, SIZE_BYTES
from barnabas.network.transport.sockets import SendFile

JOINED_BYTES_MAX: Final = 64 * 1024
"""Up to here one copy into one buffer is cheaper than handing the kernel a list."""

VECTOR_PARTS_MAX: Final = 256
QUEUED_PARTS_MAX: Final = 1_024
_MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)


class RegionCutShort(Exception):
    """The file ends before the region does: the announced size cannot be kept."""


class RegionUnreadable(Exception):
    """The disk fails to read a region: a fault of the log, not of the connection."""

    def __init__(self, region: FileRegion, error: OSError) -> None:
        super().__init__(f"records cannot be read: {error}")
        self.region = region
        self.error = error


class Away(NamedTuple):
    """The next region is on a disk and not in memory.

    It is probed once: a system that never reports a region as cached is served all the same.
    """

    region: FileRegion
    begin: int
    length: int

    def bring_in(self) -> None:
        self.region.bring_in(self.begin, self.length)


def read_part(
    region: FileRegion, position: int, length: int, *, is_brought_in: bool
) -> bytes | bytearray | None:
    """Read from the file of a region; None if that would block on the disk, unless it was brought in."""
    try:
        return (region.file.read_at if is_brought_in else region.file.read_now)(position, length)
    except OSError as error:
        raise RegionUnreadable(region, error) from error


class Output:
    __slots__ = (
        "_file_bytes",
        "_files",
        "_queue",
        "_region_sent",
        "_send_file",
        "_sent_total",
        "_socket",
        "away",
        "memory_bytes",
    )

    def __init__(self, sock: socket.socket, sent_total: Counter, send_file: SendFile) -> None:
        self._socket = sock
        self._send_file = send_file
        self._sent_total = sent_total
        self._queue: deque[Part] = deque()
        self._files = 0
        self._file_bytes = 0
        self._region_sent = 0
        self.away: Away | None = None
        self.memory_bytes = 0

    @property
    def empty(self) -> bool:
        return not self._queue

    @property
    def congested(self) -> bool:
        return self.memory_bytes > OUTPUT_CONGESTED_BYTES or len(self._queue) > QUEUED_PARTS_MAX

    def put(self, parts: Sequence[Part]) -> None:
        """Queue one frame; nothing is sent before `flush`."""
        size = file_bytes = 0
        for part in parts:
            length = len(part)
            size += length
            if isinstance(part, FileRegion):
                file_bytes += length
                self._files += 1
        self._queue.append(SIZE.pack(size))
        self._queue.extend(parts)
        self._file_bytes += file_bytes
        self.memory_bytes += SIZE_BYTES + size - file_bytes

    def flush(self) -> bool:
        """Send what the socket takes now, within one turn's share; True when nothing is left."""
        brought_in = None
        if self.away is not None:
            brought_in, self.away = self.away.region, None
        if self._files:
            is_small = self.memory_bytes + self._file_bytes <= JOINED_BYTES_MAX
            if is_small and not self._read_regions(brought_in):
                return False
        if self._files or self.memory_bytes > JOINED_BYTES_MAX:
            return self._drain(brought_in)
        queue = self._queue
        if not queue:
            return True
        joined = b"".join(queue)  # type: ignore[arg-type]  # there is no region among them
        queue.clear()
        try:
            sent = self._socket.send(joined)
        except (BlockingIOError, InterruptedError):
            sent = 0
        self._sent_total.value += sent
        self.memory_bytes = len(joined) - sent
        if self.memory_bytes:
            queue.append(memoryview(joined)[sent:])
            return False
        return True

    def _read_regions(self, brought_in: FileRegion | None) -> bool:
        """Read the queued regions into memory; False if one of them is away."""
        found: list[Part] = []
        begun = self._region_sent
        for part in self._queue:
            if isinstance(part, FileRegion):
                wanted = part.length - begun
                data = read_part(part, part.position + begun, wanted, is_brought_in=part is brought_in)
                if data is None:
                    self.away = Away(part, begun, wanted)
                    return False
                if len(data) < wanted:
                    raise RegionCutShort(f"the file has {len(data)} of {wanted} bytes")
                begun = 0
                found.append(data)
            else:
                found.append(part)
        self._queue = deque(found)
        self.memory_bytes += self._file_bytes
        self._files = self._file_bytes = self._region_sent = 0
        return True

    def _drain(self, brought_in: FileRegion | None) -> bool:
        queue = self._queue
        share = SEND_PER_TURN_BYTES_MAX
        while queue and share > 0:
            head = queue[0]
            try:
                if isinstance(head, FileRegion):
                    if head is not brought_in and self._is_away(head, share):
                        return False
                    sent = self._send_region(head, share)
                else:
                    sent = self._send_memory()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                # A socket has errors of its own; this one is the disk's.
                if error.errno == errno.EIO and isinstance(head, FileRegion):
                    raise RegionUnreadable(head, error) from error
                raise
            share -= sent
            self._sent_total.value += sent
        return not queue

    def _is_away(self, region: FileRegion, share: int) -> bool:
        begun = self._region_sent
        wanted = min(region.length - begun, share)
        if wanted == 0 or region.is_at_hand(begun, wanted):
            return False
        self.away = Away(region, begun, wanted)
        return True

    def _send_region(self, region: FileRegion, share: int) -> int:
        left = region.length - self._region_sent
        sent = 0
        if left:
            position = region.position + self._region_sent
            sent = self._send_file(self._socket.fileno(), region.file.fileno(), position, min(left, share))
            if sent == 0:
                raise RegionCutShort(f"the file ends {left} bytes before its region")
            self._file_bytes -= sent
        if sent == left:
            self._queue.popleft()
            self._files -= 1
            self._region_sent = 0
        else:
            self._region_sent += sent
        return sent

    def _send_memory(self) -> int:
        queue = self._queue
        vector: list[bytes | bytearray | memoryview] = []
        flags = 0
        for part in islice(queue, VECTOR_PARTS_MAX):
            if isinstance(part, FileRegion):
                flags = _MSG_MORE
                break
            vector.append(part)
        sent = self._socket.sendmsg(vector, (), flags)
        self.memory_bytes -= sent
        left = sent
        for part in vector:
            if left < len(part):
                queue[0] = memoryview(part)[left:]
                break
            left -= len(part)
            queue.popleft()
        return sent

    def discard(self) -> None:
        """Release everything, the files too."""
        self._queue.clear()
        self.away = None
        self._files = self._file_bytes = self._region_sent = self.memory_bytes = 0
