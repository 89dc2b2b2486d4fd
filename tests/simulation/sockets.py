"""The two ends of a connection, as a server's socket and as a client's transport see them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.trace import Trace

WINDOW_BYTES = 256 * 1024
HIGH_WATER_BYTES = 64 * 1024
_FINISH = b""


class OneWay(Protocol):
    def put(self, payload: Any) -> None: ...
    def close(self) -> None: ...


class Wires(Protocol):
    """The network, as one end uses it."""

    loop: SimulatedLoop
    trace: Trace
    without_descriptors: set[str]

    def direction(
        self, source: str, target: str, deliver: Callable[[Any], None], broken: Callable[[], None]
    ) -> OneWay: ...
    def message(self, source: str, target: str, callback: Callable[[], None]) -> None: ...
    def stream_ended(self, stream: Stream) -> None: ...
    def is_taken(self, address: tuple[str, int]) -> bool: ...
    def listen(self, sock: SimulatedSocket) -> None: ...
    def accepted(self, end: End) -> SimulatedSocket: ...
    def socket_closed(self, sock: SimulatedSocket, fd: int) -> None: ...


class Stream:
    """One connection: `ends[0]` asked for it, `ends[1]` was asked."""

    def __init__(
        self,
        network: Wires,
        asking: Process,
        asked: Process,
        asking_address: tuple[str, int],
        asked_address: tuple[str, int],
    ) -> None:
        self._network = network
        one = End(self, network, asking, asking_address)
        other = End(self, network, asked, asked_address)
        self.ends = (one, other)
        one.join(other)
        other.join(one)

    def reset(self) -> None:
        """Both sides receive it, each in its time."""
        for end in self.ends:
            end.broken()

    def ended(self) -> None:
        if all(end.is_closed for end in self.ends):
            self._network.stream_ended(self)


class End:
    """One end in the kernel: received bytes, and whether more can come."""

    def __init__(self, stream: Stream, network: Wires, process: Process, address: tuple[str, int]) -> None:
        self.process = process
        self.address = address
        self.inbox = bytearray()
        self.is_finished = False
        """The other side has said that nothing more comes."""
        self.is_reset = False
        self.is_closed = False
        self.on_change: Callable[[], None] = _ignore
        self._stream = stream
        self._network = network
        self._under_way_bytes = 0
        self._waits_for_room = False

    def join(self, peer: End) -> None:
        self.peer = peer
        self._out = self._network.direction(
            self.process.host, peer.process.host, lambda payload: peer.arrive(payload, self), self.broken
        )
        self._label = ":".join(map(str, (*peer.address, *self.address)))

    @property
    def is_held(self) -> bool:
        """Whether a program has it in hand."""
        return self.on_change is not _ignore

    @property
    def is_readable(self) -> bool:
        return bool(self.inbox) or self.is_finished or self.is_reset

    @property
    def room_bytes(self) -> int:
        if self.is_reset:
            return 1
        return WINDOW_BYTES - self._under_way_bytes - len(self.peer.inbox)

    def send(self, data: bytes) -> int:
        if self.is_closed:
            raise OSError(errno.EBADF, "the socket is closed")
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        room = self.room_bytes
        taken = data if len(data) <= room else data[: max(room, 0)]
        self._waits_for_room = len(data) >= room
        if not taken and data:
            raise BlockingIOError(errno.EAGAIN, "the window is full")
        self._under_way_bytes += len(taken)
        self._out.put(taken)
        return len(taken)

    def receive(self, count: int) -> bytes | bytearray:
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        if not self.inbox:
            if self.is_finished:
                return b""
            raise BlockingIOError(errno.EAGAIN, "nothing has come")
        taken = self.inbox
        if len(taken) <= count:
            self.inbox = bytearray()
        else:
            taken = taken[:count]
            del self.inbox[:count]
        peer = self.peer
        if peer._waits_for_room:
            peer._waits_for_room = False
            peer.on_change()
        return taken

    def arrive(self, payload: bytes, sender: End) -> None:
        sender._under_way_bytes -= len(payload)
        if self.is_closed:
            sender.broken()  # nobody is here any more: the kernel answers with a reset
            return
        self._network.trace.note_message(self._label, len(payload), zlib.crc32(payload))
        if not payload:
            self.is_finished = True
        else:
            self.inbox += payload
        self.on_change()

    def finish(self) -> None:
        """Close in order: sent bytes still arrive."""
        if not self.is_closed:
            self.is_closed = True
            if not self.is_reset:
                self._out.put(_FINISH)
            self._stream.ended()

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._out.close()
            if not self.is_reset:
                peer = self.peer
                self._network.message(self.process.host, peer.process.host, peer.broken)
            self._stream.ended()

    def vanish(self) -> None:
        """The end dies with its machine, and sends nothing."""
        self.is_closed = True
        self._out.close()
        self._stream.ended()

    def broken(self) -> None:
        if not self.is_closed and not self.is_reset:
            self.is_reset = True
            self._out.close()
            self._network.trace.note("reset", *self.address, *self.peer.address)
            self.on_change()


class SimulatedSocket(socket.socket):
    """A server's socket: one that listens, or one that was accepted."""

    def __init__(self, network: Wires, fd: int, process: Process, end: End | None = None) -> None:
        # No super().__init__(): there is no descriptor of the system behind this.
        self.process = process
        self.address = ("", 0)
        self._network = network
        self._fd = fd
        self._end = end
        self._backlog: deque[End] = deque()
        if end is not None:
            self.address = end.address
            end.on_change = self._changed
            self._changed()

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *options: Any) -> None:
        """None of them means anything here."""

    def bind(self, address: Any) -> None:
        if self._network.is_taken(address):
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.address = address

    def listen(self, backlog: int = 0) -> None:
        self._network.listen(self)

    def getsockname(self) -> Any:
        return self.address

    def arrived(self, end: End) -> None:
        self._backlog.append(end)
        self._network.loop.set_readable(self._fd, is_readable=True)

    def accept(self) -> tuple[socket.socket, Any]:
        if not self._backlog:
            raise BlockingIOError(errno.EAGAIN, "nobody has come")
        if self.process.host in self._network.without_descriptors:
            raise OSError(errno.EMFILE, "Too many open files")
        end = self._backlog.popleft()
        self._network.loop.set_readable(self._fd, is_readable=bool(self._backlog))
        return self._network.accepted(end), end.peer.address

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        assert self._end is not None
        found = self._end.receive(nbytes or len(buffer))
        buffer[: len(found)] = found
        if not self._end.is_readable:
            self._network.loop.set_readable(self._fd, is_readable=False)
        return len(found)

    def send(self, data: Any, flags: int = 0) -> int:
        end = self._end
        assert end is not None
        try:
            return end.send(bytes(data))
        finally:
            if end.room_bytes <= 0:
                self._network.loop.set_writable(self._fd, is_writable=False)

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:
        return self.send(b"".join(buffers))

    def send_from(self, source: int, position: int, count: int) -> int:
        return self.send(os.pread(source, count, position))

    def forget(self) -> None:
        """Its process is dead, and reads nothing any more."""
        self._fd = -1
        if self._end is not None:
            self._end.on_change = _ignore

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd == -1:
            return
        if self._end is not None:
            self._end.on_change = _ignore
            if self._end.inbox:
                self._end.abort()  # as a kernel does when something is left unread
            else:
                self._end.finish()
        for end in self._backlog:
            end.abort()
        self._network.socket_closed(self, fd)

    def _changed(self) -> None:
        if self._fd != -1 and self._end is not None:
            loop = self._network.loop
            loop.set_readable(self._fd, is_readable=self._end.is_readable)
            loop.set_writable(self._fd, is_writable=self._end.room_bytes > 0)


class StreamTransport(asyncio.Transport):
    """A client's end, under a `BufferedProtocol`."""

    def __init__(self, loop: SimulatedLoop, end: End, protocol: Any) -> None:
        super().__init__()
        self._loop = loop
        self._end = end
        self._protocol = protocol
        self._unsent = bytearray()
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False
        self._will_look = False
        end.on_change = self._changed
        self._changed()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _NoOptions() if name == "socket" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._unsent += data
            self._flush()

    def close(self) -> None:
        self._is_closing = True
        if not self._unsent:
            self._lose(None)

    def abort(self) -> None:
        self._is_closing = True
        self._unsent.clear()
        if not self._is_lost:
            self._end.abort()
        self._lose(None)

    def _changed(self) -> None:
        """Of the kernel: the process looks when it runs."""
        if not self._will_look:
            self._will_look = True
            self._end.process.call_soon(self._look)

    def _look(self) -> None:
        self._will_look = False
        if self._is_lost:
            return
        end = self._end
        try:
            while end.is_readable:
                found = end.receive(WINDOW_BYTES)
                if not found:
                    end.finish()
                    self._lose(None)
                    return
                self._feed(found)
                if self._is_lost:
                    return
        except OSError as error:
            end.abort()
            self._lose(error)
        else:
            if self._unsent:
                self._flush()

    def _feed(self, found: bytes | bytearray) -> None:
        left = memoryview(found)
        while left and not self._is_closing:
            buffer = self._protocol.get_buffer(len(left))
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            self._protocol.buffer_updated(count)
            left = left[count:]

    def _flush(self) -> None:
        try:
            while self._unsent:
                sent = self._end.send(bytes(self._unsent))
                del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            return  # it will be seen by who reads
        if len(self._unsent) > HIGH_WATER_BYTES and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()
        elif not self._unsent and self._is_paused:
            self._is_paused = False
            self._protocol.resume_writing()
        if self._is_closing and not self._unsent:
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._end.finish()
            self._loop.call_soon(self._protocol.connection_lost, error)


class _NoOptions:
    def setsockopt(self, *options: Any) -> None:
        """None of them means anything here."""


def _ignore() -> None:
    """No process reads this end."""
