"""The metrics over HTTP, for Prometheus to scrape: GET /metrics, and /health for a load balancer.

A scrape every few seconds needs no web framework; this reads one bounded request head, answers
it, and closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable

from barnabas.core.metrics import Metrics, render_prometheus

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 10.0
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    def __init__(self, metrics: Metrics, state: Callable[[], str]) -> None:
        self._metrics = metrics
        self._state = state

    @contextlib.asynccontextmanager
    async def serve(self, host: str, port: int) -> AsyncIterator[int]:
        """Serve until the context ends; yields the port, which matters when 0 was asked for."""
        try:
            server = await asyncio.start_server(self._answer, host, port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise OSError(error.errno, f"cannot serve metrics on {host}:{port}: {reason}") from error
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            logger.debug("a metrics request was given up")
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            status, body = "405 Method Not Allowed", "only GET is served here\n"
        elif path == b"/metrics":
            status, body = "200 OK", render_prometheus(self._metrics)
        elif path == b"/health":
            status, body = "200 OK", f"{self._state()}\n"
        else:
            status, body = "404 Not Found", "there are /metrics and /health here\n"
        payload = body.encode()
        headers = f"Content-Type: {TEXT}\r\nContent-Length: {len(payload)}\r\nConnection: close"
        return f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode() + (b"" if method == b"HEAD" else payload)
