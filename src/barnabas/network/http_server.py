"""A small HTTP server for what is asked now and then: a scrape of metrics, a change to a pipeline.

A connection has one request. Everything about it is bounded: how many there are, in all and of one address;
the bytes of the head and of the body; the time of the handshake, of either and of the answer. Nothing of
a body is read before its sender is known. Handshakes are made one at a time with pauses between them, as they
cost the loop that others need too. Who is let in, and who is not, is a line in the audit log.

A page in somebody's browser can send requests to an address of that person's own machine. One that names
another origin is refused, and on loopback one that was sent to another host's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from barnabas.core.clock import Clock
from barnabas.core.complaints import Complaints
from barnabas.core.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.scheduler import Timers
from barnabas.core.tasks import Tasks
from barnabas.network.http_messages import (
    HEAD_BYTES_MAX,
    HEAD_END,
    HttpResponse,
    RequestHead,
    RequestRefused,
    bounded,
    parse_chunk_bytes,
    parse_head,
    refusal,
    render,
)
from barnabas.network.listener import Listener, bind, prepare_accepted
from barnabas.network.sockets import SYSTEM_SOCKETS
from barnabas.security.acl.audit import Audit
from barnabas.security.http_security import HttpSecurity
from barnabas.security.principal import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:  # what makes contexts needs a library that most do without
    from barnabas.security.tls.context import ListenerContext

logger = logging.getLogger(__name__)

BACKLOG: Final = 128
CONNECTIONS_MAX: Final = 128
CONNECTIONS_PER_HOST_MAX: Final = 32
CHUNKS_MAX: Final = 4_096
"""Of one body: each takes some work, and the smallest has a byte."""
HANDSHAKE_PAUSE_MS: Final = 20.0
REFUSAL_PAUSE_S: Final = 0.1
"""Before somebody hears that a password is wrong."""
NAMELESS: Final = "certificate"
"""Who has shown a certificate of which no rule makes a name."""


class Deadlines(NamedTuple):
    """In seconds."""

    head: float = 10.0
    """And the handshake before it."""
    body: float = 30.0
    answer: float = 30.0
    """To be taken by the client."""
    linger: float = 2.0
    """For a client that still sends what is not wanted, and has to hear so."""
    close: float = 2.0


DEADLINES: Final = Deadlines()


class HttpRequest(NamedTuple):
    head: RequestHead
    body: bytes
    user: str


Answer = Callable[[HttpRequest], Awaitable[HttpResponse]]


def bind_http(endpoint: Endpoint) -> Listener:
    """Who comes before it is served waits in the backlog. OSError says why the address is not to be had."""
    wanted = ListenerEndpoint("HTTP", endpoint)
    return bind(wanted, SYSTEM_SOCKETS, backlog=BACKLOG, send_buffer_bytes=-1, receive_buffer_bytes=-1)


class HttpServer:
    def __init__(
        self,
        answer: Answer,
        security: HttpSecurity,
        clock: Clock,
        timers: Timers,
        deadlines: Deadlines = DEADLINES,
    ) -> None:
        self._answer = answer
        self._security = security
        self._timers = timers
        self._deadlines = deadlines
        self._complaints = Complaints(logger, clock)
        self._audit = Audit(clock)
        self._connections = Tasks()
        self._by_host: Counter[str] = Counter()
        self._checking = asyncio.Lock()
        """Passwords are checked one after the other: strangers get one core at most, and one of the threads
        that the process has for all that blocks."""

    @contextlib.asynccontextmanager
    async def serve(self, listener: Listener) -> AsyncIterator[None]:
        """Serve who comes to `listener`, until the context ends, which closes it."""
        listener.start(asyncio.get_running_loop(), self._timers, self._complaints, self._accepted)
        try:
            yield
        finally:
            listener.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._deadlines.close):
                    await self._connections.finished()
            await self._connections.close()

    def _accepted(self, listener: Listener, sock: socket.socket, host: str, _: int) -> None:
        if len(self._connections) >= CONNECTIONS_MAX or self._by_host[host] >= CONNECTIONS_PER_HOST_MAX:
            self._complaints.warn("crowd", "a connection of %s is closed: there are too many", host)
            sock.close()
            return
        prepare_accepted(sock)
        self._by_host[host] += 1
        self._connections.start(self._serve_connection(sock, host))
        if self._security.is_tls:
            listener.rest(HANDSHAKE_PAUSE_MS)

    async def _serve_connection(self, sock: socket.socket, host: str) -> None:
        try:
            async with self._opened(sock) as connection:
                await self._serve_request(connection, host)
        except TimeoutError:
            self._complaints.warn("slow", "a connection of %s is closed: its time is up", host)
        except (OSError, EOFError) as error:
            if isinstance(error, ssl.SSLError):
                self._complaints.warn("tls", "no TLS with %s: %s", host, error.reason or "it is refused")
            else:
                self._complaints.warn("gone", "%s went away before its request was served", host)
        finally:
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    @contextlib.asynccontextmanager
    async def _opened(self, sock: socket.socket) -> AsyncIterator[_Connection]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        made = self._security.context()
        context = None if made is None else made.context
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                sock,
                ssl=context,
                ssl_handshake_timeout=None if context is None else self._deadlines.head,
                ssl_shutdown_timeout=None if context is None else self._deadlines.linger,
            )
        except BaseException:
            sock.close()
            raise
        transport.set_write_buffer_limits(high=0)  # what is sent has left before the connection is closed
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        connection = _Connection(reader, writer, None if made is None else _certified(made, writer))
        try:
            yield connection
        finally:
            # Not waited for: a client that does not take its answer has had its time.
            if connection.is_broken:
                transport.abort()
            else:
                transport.close()

    async def _serve_request(self, connection: _Connection, host: str) -> None:
        method = "GET"
        try:
            async with asyncio.timeout(self._deadlines.head):
                head = await connection.head()
            method = head.method
            user = await self._authenticated(head, connection, host)
            async with asyncio.timeout(self._deadlines.body):
                body = await connection.body(head)
            response = await self._answer(HttpRequest(head, body, user))
        except RequestRefused as refused:
            response = refusal(refused)
        except (OSError, EOFError, TimeoutError):
            connection.is_broken = True
            raise
        except Exception as error:  # noqa: BLE001 - one request fails, the server goes on
            self._complaints.error("fault", "a request of %s failed", host, cause=error)
            response = refusal(RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, "this went wrong here"))
        try:
            async with asyncio.timeout(self._deadlines.answer):
                await connection.send(render(response, method))
        except (OSError, TimeoutError):
            connection.is_broken = True
            raise
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._deadlines.linger):
                await connection.take_the_rest()

    async def _authenticated(self, head: RequestHead, connection: _Connection, host: str) -> str:
        try:
            _check_origin(head, is_local=self._security.is_local)
            authorization = head.header(b"authorization")
        except RequestRefused as refused:
            self._note(head, ANONYMOUS.name, host, refused.message, is_allowed=False)
            raise
        access = self._security.access
        if access.is_open:
            self._note(head, ANONYMOUS.name, host, "it is open", is_allowed=True)
            return ANONYMOUS.name
        shown = None if authorization is None else authorization.decode("latin-1")
        async with self._checking:
            user = await asyncio.to_thread(access.accept, shown, certificate_of=connection.certificate_of)
        if user is not None:
            how = "by a certificate" if user == connection.certificate_of else "by what it has shown"
            self._note(head, user, host, how, is_allowed=True)
            return user
        why = "no credentials" if shown is None else "wrong credentials"
        self._note(head, ANONYMOUS.name, host, why, is_allowed=False)
        if shown is not None:
            self._complaints.warn("credentials", "a request of %s is refused: wrong credentials", host)
            await asyncio.sleep(REFUSAL_PAUSE_S)
        asked = tuple((b"www-authenticate", each.encode()) for each in access.schemes)
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, "authentication is required", asked)

    def _note(self, head: RequestHead, user: str, host: str, because: str, *, is_allowed: bool) -> None:
        """Without the query, which may be anything."""
        principal, path = KafkaPrincipal.user(user), head.path.decode("latin-1")
        self._audit.note_http(principal, host, head.method, path, because, is_allowed=is_allowed)


def _certified(made: ListenerContext, writer: asyncio.StreamWriter) -> str | None:
    """Whose certificate the client has shown; the handshake ends if that is not a good one."""
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if shown is None:
        return None
    principal = made.principal(shown)
    return NAMELESS if principal is None else principal.name


class _Connection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, certificate_of: str | None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._has_more = False
        self.certificate_of = certificate_of
        self.is_broken = False

    async def head(self) -> RequestHead:
        self._has_more = True
        try:
            raw = await self._reader.readuntil(HEAD_END)
        except asyncio.LimitOverrunError:
            raise RequestRefused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has at most {HEAD_BYTES_MAX} bytes"
            ) from None
        return parse_head(raw)

    async def body(self, head: RequestHead) -> bytes:
        length = head.body_bytes
        if length != 0 and (head.header(b"expect") or b"").lower() == b"100-continue":
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        found = await self._chunks() if length is None else await self._reader.readexactly(length)
        self._has_more = False
        return found

    async def _chunks(self) -> bytes:
        found = bytearray()
        chunks = 0
        while size := parse_chunk_bytes(await self._line()):
            bounded(len(found) + size)
            chunks += 1
            if chunks > CHUNKS_MAX:
                raise RequestRefused(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {CHUNKS_MAX} chunks"
                )
            found += await self._reader.readexactly(size)
            if await self._reader.readexactly(2) != b"\r\n":
                raise RequestRefused(HTTPStatus.BAD_REQUEST, "a chunk is malformed")
        if await self._line() != b"\r\n":
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "what follows the last chunk is not taken")
        return bytes(found)

    async def _line(self) -> bytes:
        try:
            return await self._reader.readuntil(b"\r\n")
        except asyncio.LimitOverrunError:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "a chunk is malformed") from None

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def take_the_rest(self) -> None:
        """Of a request that was refused: whoever closes while bytes arrive takes its answer back."""
        if not self._has_more:
            return
        if self._writer.can_write_eof():
            self._writer.write_eof()
        while await self._reader.read(HEAD_BYTES_MAX):
            pass


def _check_origin(head: RequestHead, *, is_local: bool) -> None:
    host = (head.header(b"host") or b"").decode("latin-1").lower()
    origin = head.header(b"origin")
    try:
        is_other_origin = origin is not None and urlsplit(origin.decode("latin-1").lower()).netloc != host
        is_other_host = is_local and bool(host) and not _is_own_name(host)
    except ValueError:  # a bracket without its other half, or something in both that is no address
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "its host or origin is malformed") from None
    if is_other_origin:
        raise RequestRefused(HTTPStatus.FORBIDDEN, "a page of another origin may not ask here")
    if is_other_host:
        raise RequestRefused(HTTPStatus.FORBIDDEN, "this host is not known by that name")


def _is_own_name(host: str) -> bool:
    """An address or localhost: the name that a stranger gave this machine is neither."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
