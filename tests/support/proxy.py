"""A connection that a test can cut, mute and heal: a proxy in front of one server, on the test's loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.ports import free_port


class Proxy:
    def __init__(self, target_host: str, target_port: int) -> None:
        self.host = "127.0.0.1"
        self.port = free_port()
        self._target = (target_host, target_port)
        self._is_cut = False
        self._replies_pass = True
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._writers) // 2

    def cut(self) -> None:
        """Close every connection and refuse new ones."""
        self._is_cut = True
        self.drop()

    def heal(self) -> None:
        self._is_cut = False
        self._replies_pass = True

    def drop(self) -> None:
        """Close every connection; new ones are welcome."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def lose_replies(self) -> None:
        """Requests reach the server, and its responses are lost, until `heal`."""
        self._replies_pass = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        await asyncio.gather(
            self._pump(reader, far_writer, is_reply=False), self._pump(far_reader, writer, is_reply=True)
        )
        self._writers -= both

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if is_reply and not self._replies_pass:
                    continue
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def proxied(target_host: str, target_port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(target_host, target_port)
    server = await asyncio.start_server(proxy.serve, proxy.host, proxy.port)
    try:
        yield proxy
    finally:
        proxy.cut()
        server.close()
        await server.wait_closed()
