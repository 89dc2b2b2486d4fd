"""A server on a loopback port, a clock that moves by hand, and clients that speak raw frames."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.settings import broker_config
from tests.support.waiting import PATIENCE_S

from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Background, InlineBackground
from barnabas.network.connection_limits import ConnectionLimits
from barnabas.network.handshakes import ContextSource
from barnabas.network.server import Server
from barnabas.network.transport.exchange import Exchange, Gate

EVENTUALLY_S = PATIENCE_S


def echo(exchange: Exchange, frame: memoryview) -> None:
    exchange.respond([b"re:", bytes(frame)])


class Later:
    """Keeps every exchange with its request; the test answers when it likes."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.requests: list[bytes] = []

    def __call__(self, exchange: Exchange, frame: memoryview) -> None:
        self.exchanges.append(exchange)
        self.requests.append(bytes(frame))

    async def has(self, index: int) -> None:
        await until(lambda: len(self.exchanges) > index)

    def answer(self, index: int) -> None:
        self.exchanges[index].respond([b"re:", self.requests[index]])


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Client:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, *payloads: bytes) -> None:
        await self.send_raw(b"".join(map(framed, payloads)))

    async def send_raw(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def receive_exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            async with asyncio.timeout(EVENTUALLY_S):
                some = await self._loop.sock_recv(self.sock, min(count - len(received), 1 << 20))
            if not some:
                raise EOFError(f"closed after {len(received)} of {count} bytes")
            received += some
        return bytes(received)

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.receive_exactly(4))
        return await self.receive_exactly(size)

    async def sees_the_end(self) -> bool:
        """True when the server closes, by an end of stream or a reset; fails on any byte."""
        async with asyncio.timeout(EVENTUALLY_S):
            try:
                return await self._loop.sock_recv(self.sock, 1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close so that the peer sees a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def make_server(clock: ManualClock, scheduler: ManualScheduler, metrics: Metrics) -> Server:
    """A server with Kafka's defaults."""
    return Server(
        clock=clock,
        scheduler=scheduler,
        metrics=metrics,
        config=broker_config(),
        background=InlineBackground(),
    )


@dataclass
class Served:
    server: Server
    clock: ManualClock
    scheduler: ManualScheduler
    port: int

    def on(self, listener_name: str) -> Served:
        """The same server, for clients of another listener."""
        (found,) = [each for each in self.server.listeners if each.name == listener_name]
        other = Served(self.server, self.clock, self.scheduler, found.bound.endpoint.port)
        other._clients = self._clients
        return other

    async def connect(self, host: str = "127.0.0.1", *, receive_buffer_bytes: int | None = None) -> Client:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (host, self.port))
        except BaseException:
            sock.close()
            raise
        client = Client(sock)
        self._clients.append(client)
        return client

    def __post_init__(self) -> None:
        self._clients: list[Client] = []

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()

    async def receives_more_than(self, count: int) -> None:
        await until(lambda: self.server.counters.received.value > count)

    def closed(self, reason: str) -> int:
        return self.server.counters.closed[reason].value  # type: ignore[index]


@contextlib.asynccontextmanager
async def serving(
    dispatch: Callable[[Exchange, memoryview], None],
    *,
    host: str = "127.0.0.1",
    protocol: str = "PLAINTEXT",
    gate: Gate | None = None,
    tls: ContextSource | None = None,
    also: Sequence[str] = (),
    background: Background | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """`settings` are keys, with underscores for dots, and limits of connections; `also` are further
    listeners."""
    clock = ManualClock()
    names = [each.name for each in fields(ConnectionLimits) if each.name in settings]
    limits = ConnectionLimits(**{name: settings.pop(name) for name in names})
    scheduler = ManualScheduler(clock)
    server = Server(
        clock=clock,
        scheduler=scheduler,
        metrics=Metrics(),
        config=broker_config(**settings),
        limits=limits,
        background=background or InlineBackground(),
    )
    endpoints = [ListenerEndpoint("TEST", Endpoint(host, 0), protocol)]
    endpoints += [ListenerEndpoint(name, Endpoint(host, 0), "PLAINTEXT") for name in also]
    listener = server.bind(endpoints)[0]
    gates = {} if gate is None else {"TEST": gate}
    served = Served(server, clock, scheduler, listener.bound.endpoint.port)
    try:
        server.start(asyncio.get_running_loop(), dispatch, gates, {} if tls is None else {"TEST": tls})
        yield served
    finally:
        await server.stop()
        served.close_clients()
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds; on a timeout the test fails by its own assertion."""
    async with asyncio.timeout(EVENTUALLY_S):
        while not condition():  # noqa: ASYNC110 - there is nothing in the server to wait on
            await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Let everything happen that is ready to happen."""
    for _ in range(count):
        await asyncio.sleep(0)


def open_descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - names are all there is to see


@contextlib.contextmanager
def no_descriptor_leaks() -> Iterator[None]:
    """Of the process: what other tests left to the collector goes before, not in the middle."""
    gc.collect()
    before = len(open_descriptors())
    yield
    gc.collect()
    assert len(open_descriptors()) <= before
