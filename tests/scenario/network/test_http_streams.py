"""The HTTP server with connections that stay open, and responses that stream, behind its ASGI face."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from barnabas.config.definitions import BROKER_KEYS
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.reporting.metrics import Metrics
from barnabas.network.http.asgi import answer_by
from barnabas.network.http.server import HttpServer, Limits, bind_http
from barnabas.node.runtime import LoopScheduler
from barnabas.security.http.settings import http_security

GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n"


class Application:
    """An ASGI application whose streams the test can follow."""

    def __init__(self) -> None:
        self.streams = 0
        self.ended = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        body = (await receive())["body"]
        if path == "/broken":
            raise RuntimeError("on purpose")
        if path == "/nothing":
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-path", path.encode())]})
        if path == "/three":
            for number in range(3):
                await send(
                    {"type": "http.response.body", "body": b"part %d;" % number, "more_body": number < 2}
                )
        elif path == "/forever":
            self.streams += 1
            try:
                while True:
                    await send({"type": "http.response.body", "body": b"tick;", "more_body": True})
                    await asyncio.sleep(0.005)
            finally:
                self.streams -= 1
                self.ended.set()
        elif path == "/breaks":
            await send({"type": "http.response.body", "body": b"begin;", "more_body": True})
            raise RuntimeError("on purpose")
        else:
            await send({"type": "http.response.body", "body": scope["path"].encode() + b" " + body})


@asynccontextmanager
async def served(application: Any, idle_s: float = 60.0) -> AsyncIterator[int]:
    endpoint, clock = Endpoint("127.0.0.1", 0), SystemClock()
    security = http_security(BROKER_KEYS.defaults(), "page", endpoint, clock, Metrics(), is_local=True)
    server = HttpServer(
        partial(answer_by, application),
        security,
        clock,
        LoopScheduler(asyncio.get_running_loop()),
        limits=Limits(idle_s=idle_s),
    )
    listener = bind_http(endpoint)
    async with server.serve(listener):
        yield listener.bound.endpoint.port


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def response(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head, await reader.readexactly(length)


async def test_a_connection_has_many_requests() -> None:
    async with served(Application()) as port, connected(port) as (reader, writer):
        for number in range(5):
            path = b"/number/%d" % number
            writer.write(b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody" % path)
            head, body = await response(reader)
            assert b"connection: keep-alive" in head
            assert body == path + b" body"
        writer.write(GET % (b"/last", b"Connection: close\r\n"))
        head, body = await response(reader)
        assert b"connection: close" in head
        assert await reader.read() == b""


async def test_a_pipelined_request_is_not_mixed_with_the_first() -> None:
    async with served(Application()) as port, connected(port) as (reader, writer):
        post = b"POST /one HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
        writer.write(post + GET % (b"/two", b""))
        head, body = await response(reader)
        assert body == b"/one x"
        assert b"connection: close" in head


async def test_an_idle_connection_is_closed() -> None:
    async with served(Application(), idle_s=0.05) as port, connected(port) as (reader, writer):
        writer.write(GET % (b"/", b""))
        await response(reader)
        assert await reader.read() == b""


async def test_a_stream_comes_in_chunks() -> None:
    async with served(Application()) as port, connected(port) as (reader, writer):
        writer.write(GET % (b"/three", b""))
        found = await reader.read()
        assert b"transfer-encoding: chunked" in found
        assert found.endswith(b"7\r\npart 0;\r\n7\r\npart 1;\r\n7\r\npart 2;\r\n0\r\n\r\n")


async def test_an_old_client_gets_a_stream_without_chunks() -> None:
    async with served(Application()) as port, connected(port) as (reader, writer):
        writer.write(b"GET /three HTTP/1.0\r\n\r\n")
        found = await reader.read()
        assert b"transfer-encoding" not in found
        assert found.endswith(b"\r\n\r\npart 0;part 1;part 2;")


async def test_a_stream_ends_when_its_client_leaves() -> None:
    application = Application()
    async with served(application) as port:
        async with connected(port) as (reader, writer):
            writer.write(GET % (b"/forever", b""))
            await reader.readuntil(b"tick;")
            assert application.streams == 1
        async with asyncio.timeout(60):
            await application.ended.wait()
        assert application.streams == 0


async def test_a_stream_ends_when_the_server_does() -> None:
    application = Application()
    async with served(application) as port, connected(port) as (reader, writer):
        writer.write(GET % (b"/forever", b""))
        await reader.readuntil(b"tick;")
    assert application.streams == 0


async def test_an_application_that_fails_is_one_failed_request(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Application()) as port:
        for path in (b"/broken", b"/nothing"):
            async with connected(port) as (reader, writer):
                writer.write(GET % (path, b""))
                assert b"500" in (await reader.readuntil(b"\r\n"))
        async with connected(port) as (reader, writer):
            writer.write(GET % (b"/breaks", b""))
            found = await reader.read()
            assert b"begin;" in found
            assert not found.endswith(b"0\r\n\r\n")
        async with connected(port) as (reader, writer):
            writer.write(GET % (b"/fine", b""))
            assert (await response(reader))[1] == b"/fine "
    assert "failed" in caplog.text
