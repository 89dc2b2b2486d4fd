"""Proxy in front of brokers, which records what a client and they say to each other.

A broker names itself and the other brokers in its answers, and the client connects to those. So the proxy
opens a port for each broker that it meets, and puts these ports into Metadata, FindCoordinator,
DescribeCluster, Produce and Fetch. Everything else passes byte by byte. The recording has the answers of the
brokers, not those of the proxy.

The gap: connections are in plain text. A client or a broker with TLS cannot be recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, Final

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.headers import encode_response
from barnabas.testing.traffic.frames import BrokenFrame, Request, decode_request, framed, joined, read_frame
from barnabas.testing.traffic.recording import Event, RecordingWriter

logger = logging.getLogger(__name__)

BROKERS_MAX: Final = 1_000
_ADDRESS_ARRAYS: Final = ("brokers", "coordinators", "node_endpoints")
_TURNS_TO_SERVE: Final = 4
"""Turns of the loop from an accepted connection to its task."""


class Recorder:
    """The proxy of one recording."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self._clock = SystemClock()
        self._began_ms = self._clock.monotonic_ms()
        self._brokers: dict[Endpoint, tuple[int, Endpoint]] = {}
        """Brokers behind the proxy: their number, and the proxy's address for them."""
        self._servers: list[asyncio.Server] = []
        self._connections = count(1)
        self._serving: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()

    async def open(self, listen: Endpoint, to: Endpoint) -> Endpoint:
        """Listen for the first broker; returns the bound address."""
        return await self._proxy_of(to, listen.host, listen.port)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for _ in range(_TURNS_TO_SERVE):  # a connection that was accepted just now begins, so that it can end
            await asyncio.sleep(0)
        serving = tuple(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _proxy_of(self, broker: Endpoint, host: str, port: int = 0) -> Endpoint:
        """The proxy's address for a broker, opened if need be."""
        async with self._opening:
            known = self._brokers.get(broker)
            if known is not None:
                return known[1]
            if len(self._brokers) >= BROKERS_MAX:
                raise BrokenFrame(f"the broker names more than {BROKERS_MAX} brokers")
            number = len(self._brokers)

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._serving.add(task)
                try:
                    await self._serve(broker, number, host, reader, writer)
                except asyncio.CancelledError:
                    pass  # the recording ends
                finally:
                    self._serving.discard(task)

            server = await asyncio.start_server(serve, host, port)
            self._servers.append(server)
            bound = Endpoint(host, server.sockets[0].getsockname()[1])
            self._brokers[broker] = number, bound
            return bound

    async def _serve(
        self,
        broker: Endpoint,
        number: int,
        host: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass one connection on."""
        connection = next(self._connections)
        try:
            from_broker, to_broker = await asyncio.open_connection(broker.host, broker.port)
        except BaseException as error:
            await _end(writer)
            if not isinstance(error, OSError):
                raise
            logger.warning("cannot reach the broker at %s: %s", broker, error)
            return
        asked: deque[Request] = deque()
        ways = [
            asyncio.ensure_future(self._pass_requests(connection, number, reader, to_broker, asked)),
            asyncio.ensure_future(self._pass_answers(connection, number, host, from_broker, writer, asked)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for side in (to_broker, writer):  # at once: the end of the recording may cancel what follows
                side.close()
            for each in ways:
                each.cancel()
            for failed in await asyncio.gather(*ways, return_exceptions=True):
                if isinstance(failed, Exception) and not isinstance(failed, ConnectionResetError):
                    logger.warning("connection %d ends: %s", connection, failed)
            for side in (to_broker, writer):
                await _end(side)

    async def _pass_requests(
        self,
        connection: int,
        broker: int,
        reader: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
        asked: deque[Request],
    ) -> None:
        may_be_token = False
        while (frame := await read_frame(reader)) is not None:
            request = decode_request(frame)
            # After version 0 the tokens have no header, until the first request that has one.
            if request.api is ApiKey.SASL_HANDSHAKE and request.version == 0:
                may_be_token = True
            elif may_be_token:
                may_be_token = request.message is None
                request = request._replace(is_token=may_be_token)
            if request.has_answer:
                asked.append(request)
            self._note(connection, broker, request, frame, is_answer=False)
            to_broker.write(framed(frame))
            await to_broker.drain()

    async def _pass_answers(
        self,
        connection: int,
        broker: int,
        host: str,
        from_broker: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: deque[Request],
    ) -> None:
        while (frame := await read_frame(from_broker)) is not None:
            if not asked:
                raise BrokenFrame("the broker answers a request that was not sent")
            request = asked.popleft()
            self._note(connection, broker, request, frame, is_answer=True)
            writer.write(framed(await self._redirected(request, frame, host)))
            await writer.drain()

    def _note(self, connection: int, broker: int, request: Request, frame: bytes, *, is_answer: bool) -> None:
        kept = b"" if request.is_secret else frame
        at_ms = round(self._clock.monotonic_ms() - self._began_ms)
        self._writer.add(Event(connection, broker, is_answer, kept, at_ms))

    async def _redirected(self, request: Request, frame: bytes, host: str) -> bytes:
        """The answer with the proxy's addresses in place of the brokers'."""
        message = request.decoded_answer(frame)
        if message is None:
            return frame
        changed = False
        for at in _addresses_in(message):
            if at.host and at.port > 0:
                bound = await self._proxy_of(Endpoint(at.host, at.port), host)
                at.host, at.port = bound.host, bound.port
                changed = True
        if not changed:
            return frame
        return joined(encode_response(request.correlation_id, message, request.version))


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _addresses_in(message: Any) -> Iterator[Any]:
    """Structs of an answer that have a host and a port."""
    if hasattr(message, "host") and hasattr(message, "port"):
        yield message
    for name in _ADDRESS_ARRAYS:
        for each in getattr(message, name, None) or ():
            if hasattr(each, "host") and hasattr(each, "port"):
                yield each


@asynccontextmanager
async def recording(listen: Endpoint, to: Endpoint, writer: RecordingWriter) -> AsyncIterator[Endpoint]:
    """Record during the context; yields the address for `bootstrap.servers`."""
    recorder = Recorder(writer)
    try:
        yield await recorder.open(listen, to)
    finally:
        await recorder.close()
