"""Connections of a test's broker: all of them end at once, and those to chosen brokers can be forbidden.

A broker that is killed takes its connections with it. A cut between two brokers closes the connections
between them and refuses new ones, as a firewall that rejects does. Both sides learn of it at once, and no
test waits for a timeout of TCP. Clients reach both brokers all the while.

A process that the test forked has copies of all descriptors. A socket that the broker closes would live on
there: clients would not see its end, and the port would stay in use. So a socket is shut down first.

A broker that does not run has no socket on its port, and the system could give the port to another process,
or to a client as its own. So each port is held by a socket that is bound and does not listen.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any, Final

from barnabas.network.transport.sockets import SYSTEM_SOCKETS, Sockets
from barnabas.testing.running.virtual_time import VirtualClock, VirtualLoop


class Wires:
    """Connections of one broker, from its start to its end."""

    def __init__(self, *, busy_poll_ms: float = SYSTEM_SOCKETS.busy_poll_ms) -> None:
        self.sockets: Sockets = SYSTEM_SOCKETS._replace(open=self._open, busy_poll_ms=busy_poll_ms)
        self._lock = threading.Lock()
        self._served: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        """Sockets that listen, and connections of clients and other brokers."""
        self._opened: dict[asyncio.Transport, tuple[asyncio.AbstractEventLoop, int]] = {}
        """Connections to other brokers, with their loop and the port."""
        self._forbidden: frozenset[int] = frozenset()
        self.is_dead = False
        self.ports: HeldPorts | None = None

    def _open(self, family: socket.AddressFamily, kind: socket.SocketKind) -> socket.socket:
        opened = _ListeningSocket(family, kind)
        opened.wires = self
        with self._lock:
            self._served.add(opened)
        return opened

    def accepted(self, sock: socket.socket) -> None:
        with self._lock:
            self._served.add(sock)
        if self.is_dead:  # a client that connected again before the listening socket ended
            _end(sock)

    def check(self, port: int) -> None:
        """Raise OSError unless a connection to this port may be opened."""
        if self.is_dead or port in self._forbidden:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    def opened(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._opened = {each: seen for each, seen in self._opened.items() if not each.is_closing()}
        self._opened[transport] = loop, port
        if self.is_dead or port in self._forbidden:  # while it was being opened
            transport.abort()

    def forbid(self, ports: frozenset[int]) -> None:
        """Close the connections to these ports, and refuse new ones; any thread may call it."""
        self._forbidden = ports
        for transport, (loop, port) in tuple(self._opened.items()):
            if port in ports:
                with suppress(RuntimeError):  # the loop has ended, and its connections with it
                    loop.call_soon_threadsafe(transport.abort)

    def die(self) -> None:
        """End every connection, also while the broker's loop is busy; any thread may call it."""
        self.is_dead = True
        with self._lock:  # the broker's loop may accept a connection meanwhile
            ended: list[socket.socket] = list(self._served)
        ended += [each.get_extra_info("socket")._sock for each in tuple(self._opened)]
        for each in ended:
            _end(each)


def _end(sock: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        sock.shutdown(socket.SHUT_RDWR)


class HeldPorts:
    """Ports of a broker, over all its lives."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str, int], socket.socket] = {}

    def hold(self, wanted: socket.socket, address: tuple[str, int]) -> tuple[str, int]:
        """Hold the port of an address; returns the address with the port that the system chose."""
        host, port = address
        if _MAY_HOLD and (wanted.family, host, port) not in self._held:
            held = socket.socket(wanted.family, wanted.type)
            try:
                for level, option in _SHARED_OPTIONS[wanted.family]:
                    held.setsockopt(level, option, wanted.getsockopt(level, option))
                held.bind(address)
            except OSError:
                held.close()
                raise
            port = held.getsockname()[1]
            self._held[wanted.family, host, port] = held
        return host, port

    def release(self) -> None:
        for each in self._held.values():
            each.close()
        self._held.clear()


_MAY_HOLD: Final = sys.platform == "linux"
"""Other systems let nothing listen on a port that is held."""
_SHARED_OPTIONS: Final = {
    socket.AF_INET: ((socket.SOL_SOCKET, socket.SO_REUSEADDR),),
    socket.AF_INET6: (
        (socket.SOL_SOCKET, socket.SO_REUSEADDR),
        (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY),
    ),
}
"""With these, a socket may listen on a port that another one holds."""


class _ServedSocket(socket.socket):
    __slots__ = ()

    def close(self) -> None:
        _end(self)
        super().close()


class _ListeningSocket(_ServedSocket):
    __slots__ = ("wires",)
    wires: Wires

    def bind(self, address: Any) -> None:
        ports = self.wires.ports
        super().bind(address if ports is None else ports.hold(self, address))

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        served = _ServedSocket(self.family, self.type, self.proto, fileno=accepted.detach())
        self.wires.accepted(served)
        return served, address


class WiredLoop(VirtualLoop):
    """Loop of a broker in a cluster: it opens connections through the wires."""

    def __init__(self, clock: VirtualClock, wires: Wires) -> None:
        self._wires = wires
        super().__init__(clock)

    async def create_connection(  # type: ignore[override]  # brokers use these arguments alone
        self, protocol_factory: Any, host: str, port: int, **more: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        self._wires.check(port)
        transport, protocol = await super().create_connection(protocol_factory, host, port, **more)
        self._wires.opened(transport, self, port)
        return transport, protocol
