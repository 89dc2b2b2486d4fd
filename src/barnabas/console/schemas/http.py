"""JSON over HTTP/1.1, with one deadline for all of it.

The caller is a page that a person waits for. So the deadline covers the connection, the TLS handshake and
the last byte; a server that sends one byte a second does not stretch it. The body is bounded. A redirection
is not followed, because it could lead the credentials elsewhere.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import h11

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
READ_BYTES: Final = 64 * 1024
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
OK: Final = 200
_PORTS: Final = {"http": 80, "https": 443}


class NoAnswer(Exception):
    """The server cannot be reached, is too slow, or does not speak HTTP; the message says which."""


class Address(NamedTuple):
    """Address of a server, without the credentials that its URL may have held."""

    scheme: str
    host: str
    port: int
    path: str
    credentials: str | None = None
    """`name:password`."""

    @classmethod
    def parse(cls, url: str) -> Address:
        """VALUE_ERROR says what is wrong, without the URL: it may hold a password."""
        split = urlsplit(url.strip())
        if split.scheme not in _PORTS or not split.hostname:
            raise ValueError("the address begins with http:// or https:// and names a host")
        if split.query or split.fragment:
            raise ValueError("the address has neither a query nor a fragment")
        credentials = None
        if split.username is not None:
            credentials = f"{unquote(split.username)}:{unquote(split.password or '')}"
        port = split.port or _PORTS[split.scheme]
        return cls(split.scheme, split.hostname, port, split.path.rstrip("/"), credentials)

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


async def ask_json(
    address: Address,
    path: str,
    deadline_s: float,
    *,
    tls: ssl.SSLContext | None,
    accept: str,
    method: str = "GET",
    given: object = None,
) -> tuple[int, Any]:
    """Status and JSON of an answer. `path` is escaped already; `given` is what the request says."""
    said = b"" if given is None else json.dumps(given).encode()
    try:
        async with asyncio.timeout(deadline_s):
            status, body = await _ask(address, method, path, tls, accept, said)
    except TimeoutError:
        raise NoAnswer(f"it gave no answer within {deadline_s:g} seconds") from None
    except ssl.SSLError as error:
        raise NoAnswer(f"TLS failed: {error.reason or 'refused'}") from None
    except OSError as error:
        raise NoAnswer(f"it cannot be reached: {error.strerror or type(error).__name__}") from None
    except (h11.RemoteProtocolError, EOFError):
        raise NoAnswer("it does not answer in HTTP") from None
    try:
        return status, json.loads(body) if body else None
    except (ValueError, RecursionError):
        raise NoAnswer(f"its answer ({status}) is not JSON") from None


async def _ask(
    address: Address, method: str, path: str, tls: ssl.SSLContext | None, accept: str, said: bytes
) -> tuple[int, bytes]:
    connection = h11.Connection(h11.CLIENT)
    async with _opened(address, tls) as (reader, writer):
        headers = _headers(address, accept)
        if said:
            headers += [("content-type", CONTENT_TYPE), ("content-length", str(len(said)))]
        request = h11.Request(method=method, target=address.path + path, headers=headers)
        parts = [connection.send(request), connection.send(h11.Data(said)) if said else b""]
        writer.write(b"".join(filter(None, [*parts, connection.send(h11.EndOfMessage())])))
        await writer.drain()
        status, body = 0, bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(READ_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_BYTES_MAX:
                    raise NoAnswer(f"its answer has more than {BODY_BYTES_MAX >> 20} MiB")
            elif isinstance(event, h11.EndOfMessage):
                return status, bytes(body)
            elif isinstance(event, h11.ConnectionClosed):
                raise EOFError


@asynccontextmanager
async def _opened(
    address: Address, tls: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = tls if address.scheme == "https" else None
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context, limit=READ_BYTES)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()  # no goodbye: the deadline counts


def _headers(address: Address, accept: str) -> list[tuple[str, str]]:
    host = f"[{address.host}]" if ":" in address.host else address.host
    found: Mapping[str, str] = {
        "host": f"{host}:{address.port}",
        "accept": accept,
        "connection": "close",
        "user-agent": "barnabas-console",
    }
    if address.credentials is not None:
        encoded = base64.b64encode(address.credentials.encode()).decode()
        found = {**found, "authorization": f"Basic {encoded}"}
    return list(found.items())
