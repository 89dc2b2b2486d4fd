"""Listener: the sockets on which the clients of one listener name connect.

Binding and accepting are separate. A broker binds early: a port in use stops it before it touches anything,
and early clients wait in the backlog. It accepts last, when everything behind is ready.

A name may have several addresses (localhost: ::1 and 127.0.0.1) and a client may try any of them first. So a
listener binds them all, on one port. An empty name means every interface of both families. An address that
this machine lacks (::1 where IPv6 is off) is skipped as long as another one of the name can be bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable

from barnabas.core.addressing.addresses import canonical_host
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import Cancellable, Timers
from barnabas.network.transport.arrivals import stamp_arrivals
from barnabas.network.transport.sockets import Sockets

ACCEPTS_PER_TURN_MAX = 64
EXHAUSTED_PAUSE_MS = 500
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_PORT_ATTEMPTS_MAX = 16

Accepted = Callable[["Listener", socket.socket, str, int], None]
"""Takes the listener, the new socket, the peer's host and port."""


class Listener:
    def __init__(self, wanted: ListenerEndpoint, sockets: list[socket.socket]) -> None:
        self.name = wanted.listener_name
        self.security_protocol = wanted.security_protocol
        self.bound = wanted._replace(endpoint=wanted.endpoint._replace(port=sockets[0].getsockname()[1]))
        """The configured listener, with the port that the system chose where none was given."""
        self._sockets = sockets
        self._retry: Cancellable | None = None
        self._accepting = False

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        limited_log: RateLimitedLogger,
        accepted: Accepted,
    ) -> None:
        self._loop = loop
        self._timers = timers
        self._limited_log = limited_log
        self._accepted = accepted
        self._resume()

    def close(self) -> None:
        """Stop accepting and free the port; connections stay."""
        self._pause()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for sock in self._sockets:
            sock.close()
        self._sockets = []

    def _resume(self) -> None:
        self._retry = None
        self._accepting = True
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._on_acceptable, sock)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            for sock in self._sockets:
                self._loop.remove_reader(sock.fileno())

    def _on_acceptable(self, sock: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                accepted, address = sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._wait_for_resources(error)
                    return
                continue  # the client gave up while it was in the backlog
            self._accepted(self, accepted, canonical_host(address[0]), address[1])
            if not self._accepting:
                return

    def rest(self, pause_ms: float) -> None:
        """Accept nothing for this long; clients wait in the backlog."""
        self._pause()
        if self._retry is None and self._sockets:
            self._retry = self._timers.after(pause_ms, self._resume)

    def _wait_for_resources(self, error: OSError) -> None:
        """Pause accepting: the backlog stays readable while no descriptor is free, and polling it would burn
        a core."""
        self._limited_log.warn(
            "accept", "cannot accept on listener %s: %s; retrying soon", self.name, error.strerror
        )
        self.rest(EXHAUSTED_PAUSE_MS)


def bind(
    wanted: ListenerEndpoint,
    system: Sockets,
    *,
    backlog: int,
    send_buffer_bytes: int,
    receive_buffer_bytes: int,
) -> Listener:
    """Bind and listen, but accept nothing yet. OSError names the address that failed."""
    endpoint = wanted.endpoint
    attempts_left = _PORT_ATTEMPTS_MAX
    while True:
        attempts_left -= 1
        sockets: list[socket.socket] = []
        try:
            _bind_all(endpoint, system, sockets, send_buffer_bytes, receive_buffer_bytes)
            for sock in sockets:
                sock.listen(backlog)
        except OSError as error:
            for sock in sockets:
                sock.close()
            # A port that the system chose for one address may be taken on the next.
            if endpoint.port == 0 and error.errno == errno.EADDRINUSE and attempts_left:
                continue
            where = f"{endpoint.host or '*'}:{endpoint.port}"
            raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from error
        return Listener(wanted, sockets)


def _bind_all(
    endpoint: Endpoint,
    system: Sockets,
    sockets: list[socket.socket],
    send_buffer_bytes: int,
    receive_buffer_bytes: int,
) -> None:
    """Append to `sockets` one for each address of the endpoint, all on one port."""
    port = endpoint.port
    absent: OSError | None = None
    for family, host in _addresses(endpoint):
        try:
            sock = system.open(family, socket.SOCK_STREAM)
        except OSError as error:
            absent = error
            continue
        try:
            _configure(sock, endpoint.host, send_buffer_bytes, receive_buffer_bytes)
            if system.stamps_arrivals:
                stamp_arrivals(sock)
            sock.bind((host, port))
        except OSError as error:
            sock.close()
            if error.errno not in _NOT_HERE:
                raise
            absent = error
            continue
        sockets.append(sock)
        port = sock.getsockname()[1]
    if not sockets and absent is not None:
        raise absent


def _addresses(endpoint: Endpoint) -> list[tuple[socket.AddressFamily, str]]:
    host = endpoint.host.removeprefix("[").removesuffix("]")
    if not host:
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, "::")]
        return [(socket.AF_INET, "0.0.0.0")]  # noqa: S104 - no host means every interface
    found = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def is_loopback(host: str) -> bool:
    """Whether only clients on this machine can connect; an empty name means every interface."""
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def _configure(sock: socket.socket, host: str, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
    # Accepted sockets inherit these; the window is negotiated before `accept` could set it.
    if send_buffer_bytes != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)


def prepare_accepted(sock: socket.socket) -> None:
    """Send responses at once (TCP_NODELAY), and detect vanished clients in the end (SO_KEEPALIVE)."""
    sock.setblocking(False)
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
