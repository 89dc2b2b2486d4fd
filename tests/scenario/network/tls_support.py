"""A server that speaks TLS, and clients of several kinds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from tests.scenario.network.harness import EVENTUALLY_S, Served, framed, serving
from tests.unit.security.tls.support import ca_file, pem_file, tls_settings

from barnabas.network.transport.exchange import Dispatch
from barnabas.security.tls.context import ListenerContext, make_context


@dataclass
class Fixed:
    """A context that stays."""

    current: ListenerContext


def client_context(authority: trustme.CA, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # with no authorities but the test's
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


class TlsClient:
    """asyncio's own TLS: nothing of it is shared with the server's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *payloads: bytes) -> None:
        await self.send_raw(b"".join(map(framed, payloads)))

    async def send_raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self) -> bytes:
        async with asyncio.timeout(EVENTUALLY_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def sees_the_end(self) -> bool:
        async with asyncio.timeout(EVENTUALLY_S):
            try:
                return await self.reader.read(1) == b""
            except (ConnectionError, ssl.SSLError):
                return True

    async def close(self) -> None:
        self.writer.close()
        self.writer.transport.abort()
        await asyncio.sleep(0)


@dataclass
class TlsServed:
    served: Served
    authority: trustme.CA
    clients: list[TlsClient]

    async def connect(self, context: ssl.SSLContext | None = None, **options: Any) -> TlsClient:
        context = client_context(self.authority) if context is None else context
        opened = await asyncio.open_connection(
            "127.0.0.1", self.served.port, ssl=context, server_hostname="localhost", limit=1 << 20, **options
        )
        client = TlsClient(*opened)
        self.clients.append(client)
        return client

    def failures(self, reason: str) -> int:
        return self.served.server.counters.handshake_failures[reason].value  # type: ignore[index]


@contextlib.asynccontextmanager
async def serving_tls(
    dispatch: Dispatch,
    directory: Path,
    given: dict[str, str] | None = None,
    *,
    authority: trustme.CA | None = None,
    certificate: trustme.LeafCert | None = None,
    **options: Any,
) -> AsyncIterator[TlsServed]:
    authority = authority or trustme.CA()
    certificate = certificate or authority.issue_cert("localhost")
    settings = {
        "ssl.keystore.location": pem_file(directory / "broker.pem", certificate),
        "ssl.truststore.location": ca_file(directory / "ca.pem", authority),
        **(given or {}),
    }
    contexts = Fixed(make_context(tls_settings(settings)))
    async with serving(dispatch, protocol="SSL", tls=contexts, **options) as served:
        tls = TlsServed(served, authority, [])
        try:
            yield tls
        finally:
            for client in tls.clients:
                await client.close()


def blocking_client(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    raw = socket.create_connection(("127.0.0.1", port), timeout=EVENTUALLY_S)
    try:
        return context.wrap_socket(raw, server_hostname="localhost")
    finally:
        raw.close()  # nothing is left in it once it is wrapped
