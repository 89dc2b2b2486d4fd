"""A broker that says what a test tells it to, on a real socket.

A script maps an API to a function of the request and its version; it returns the answer, or
one of the other things that brokers do: `SILENCE` (say nothing), `HANG_UP` (close) and `DRIP` (begin a long
answer, send a byte of it now and then, and read nothing meanwhile).
ApiVersions is answered from the script's own keys unless it is scripted too.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.schema.headers import encode_response_in_slices, read_request_header
from barnabas.protocol.schema.message import Message
from tests.support.waiting import PATIENCE_S

SILENCE: Final = "silence"
HANG_UP: Final = "hang up"
DRIP: Final = "drip"

Answer = Message | bytes | str
Script = dict[ApiKey, Callable[[Any, int], Answer]]


def _encoded(correlation_id: int, answer: Message, version: int) -> bytes:
    slices = encode_response_in_slices(correlation_id, answer, version, lambda _: None)
    try:
        while True:
            next(slices)
    except StopIteration as end:
        return b"".join(end.value)


FRAME_BYTES_MAX = 100 * 1024 * 1024


class ScriptedBroker:
    def __init__(self, script: Script, versions: Mapping[ApiKey, tuple[int, int]] | None = None) -> None:
        self.script = script
        self.requests: list[Message] = []
        """Everything that was asked, ApiVersions left out."""
        self.address = Endpoint("127.0.0.1", 0)
        self._versions = dict(versions or {})
        self._connections: set[asyncio.StreamWriter] = set()
        self._dripping: set[asyncio.StreamWriter] = set()

    @property
    def port(self) -> int:
        return self.address.port

    def asked(self, kind: type[Message]) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                if size > FRAME_BYTES_MAX:
                    break  # as any broker does that is spoken to in TLS and has none
                if not self._answer(await reader.readexactly(size), writer):
                    break
                await writer.drain()
                while writer in self._dripping:
                    writer.write(b"\0")
                    await writer.drain()
                    await asyncio.sleep(0.01)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._connections.discard(writer)
            self._dripping.discard(writer)
            writer.close()

    def hang_up(self) -> None:
        self._dripping.clear()
        for writer in list(self._connections):
            writer.close()

    def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        header = read_request_header(memoryview(frame))
        key = ApiKey(header.api_key)
        if key is ApiKey.API_VERSIONS and key not in self.script:
            answer: Answer = self._api_versions()
        else:
            kind = request_class(key)
            request, _ = kind.decode(frame, header.api_version, header.body_position)
            if key is not ApiKey.API_VERSIONS:
                self.requests.append(request)
            answer = self.script[key](request, header.api_version)
        if answer == DRIP:
            writer.write(struct.pack(">i", 1 << 20))
            self._dripping.add(writer)
        if isinstance(answer, str):
            return answer != HANG_UP
        if isinstance(answer, bytes):
            body = answer
        else:
            body = _encoded(header.correlation_id, answer, header.api_version)
        writer.write(struct.pack(">i", len(body)) + body)
        return True

    def _api_versions(self) -> ApiVersionsResponse:
        rows = []
        for key in (ApiKey.API_VERSIONS, *self.script):
            supported = request_class(key).supported_versions()
            low, high = self._versions.get(key, (supported[0], supported[-1]))
            rows.append(ApiVersion(api_key=key, min_version=low, max_version=high))
        return ApiVersionsResponse(api_keys=rows)


@asynccontextmanager
async def scripted_broker(
    script: Script,
    versions: Mapping[ApiKey, tuple[int, int]] | None = None,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker(script, versions)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port, ssl=tls)
    broker.address = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield broker
    finally:
        server.close()
        broker.hang_up()
        await server.wait_closed()


@contextmanager
def broker_in_thread(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedBroker]:
    """The same for a test that has no loop of its own, or whose subject runs one."""
    started = threading.Event()
    held: list[ScriptedBroker] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with scripted_broker(script, tls=tls) as broker:
            held.append(broker)
            started.set()
            await stop.wait()
        await asyncio.sleep(0.01)  # the connections' own tasks end

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(PATIENCE_S), "the broker did not start"
        yield held[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
