"""Small HTTP server: a scrape of metrics, a change to a pipeline, a page of the console.

Everything about a connection is bounded:

- the number of connections, in all and per address;
- the bytes of the head and of the body;
- the time of the handshake, the head, the body and the response, and of each chunk of a stream.

A connection has one request, unless `Limits.idle_s` keeps it open for the next. A pipelined request is not
served: the connection closes behind the response to the one before. A `StreamedResponse` ends its connection.

No byte of a body is read before the client is authenticated. Handshakes run one at a time with pauses between
them, because they take time of the loop. Each decision about a client is a line in the audit log.

A web page in a browser can send requests to addresses of the user's own machine. A request with another
origin is refused, and on loopback a request for another host name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.clock import Clock
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.core.scheduler import Timers
from barnabas.core.tasks import Tasks
from barnabas.network.http.messages import (
    HEAD_BYTES_MAX,
    HEAD_END,
    HttpResponse,
    RequestHead,
    RequestParser,
    RequestRefused,
    StreamedResponse,
    refusal,
    render,
    render_chunk,
    render_stream_head,
)
from barnabas.network.listener import Listener, bind, prepare_accepted
from barnabas.network.transport.sockets import SYSTEM_SOCKETS
from barnabas.security.acl.audit import Audit
from barnabas.security.http.settings import HttpSecurity
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:  # contexts need a library that a server without TLS does not import
    from barnabas.security.tls.context import ListenerContext

logger = logging.getLogger(__name__)

BACKLOG: Final = 128
CONNECTIONS_MAX: Final = 128
CONNECTIONS_PER_HOST_MAX: Final = 32
HANDSHAKE_PAUSE_MS: Final = 20.0
REFUSAL_PAUSE_S: Final = 0.1
"""Pause before a response to wrong credentials."""
NAMELESS: Final = "certificate"
"""User name for a client certificate that no mapping rule matches."""


class Deadlines(NamedTuple):
    """Deadlines in seconds."""

    head: float = 10.0
    """The handshake included."""
    body: float = 30.0
    answer: float = 30.0
    """For the client to read the response."""
    linger: float = 2.0
    """For a refused client that is still sending, and has to read the response."""
    close: float = 2.0


DEADLINES: Final = Deadlines()


BODIES_BYTES_MAX: Final = 32 * 1024 * 1024
SENT_BYTES: Final = 256 * 1024
"""Of a response at a time. The transport copies what the socket does not take yet."""
SMALL_BODY_BYTES: Final = 64 * 1024
"""Of each body. It is received also while large ones take all memory for bodies."""


class Limits(NamedTuple):
    connections: int = CONNECTIONS_MAX
    connections_per_host: int = CONNECTIONS_PER_HOST_MAX
    idle_s: float = 0.0
    """A connection without a request is kept for this long; 0 closes it behind its first response."""
    bodies_bytes: int = BODIES_BYTES_MAX
    """Bodies of all requests that are received or answered."""


LIMITS: Final = Limits()


class HttpRequest(NamedTuple):
    head: RequestHead
    body: bytes
    user: str
    client_host: str = ""
    certificate_user: str | None = None
    """User of the client certificate that the handshake has checked; None without one, and for one that no
    mapping rule matches."""


Answer = Callable[[HttpRequest], Awaitable[HttpResponse | StreamedResponse]]


def bind_http(endpoint: Endpoint) -> Listener:
    """Bind the address; early clients wait in the backlog. OSError names the address that failed."""
    wanted = ListenerEndpoint("HTTP", endpoint)
    return bind(wanted, SYSTEM_SOCKETS, backlog=BACKLOG, send_buffer_bytes=-1, receive_buffer_bytes=-1)


class _Bodies:
    """Memory of bodies."""

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes

    @contextlib.contextmanager
    def of_request(self) -> Iterator[Callable[[int], None]]:
        """Yields a function that takes memory for received bytes, or refuses the request."""
        received_bytes = 0

        def take(size_bytes: int) -> None:
            nonlocal received_bytes
            if received_bytes + size_bytes > SMALL_BODY_BYTES and size_bytes > self._left_bytes:
                raise RequestRefused(
                    HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests are in progress: try again later"
                )
            received_bytes += size_bytes
            self._left_bytes -= size_bytes

        try:
            yield take
        finally:
            self._left_bytes += received_bytes


class HttpServer:
    def __init__(
        self,
        answer: Answer,
        security: HttpSecurity,
        clock: Clock,
        timers: Timers,
        deadlines: Deadlines = DEADLINES,
        limits: Limits = LIMITS,
    ) -> None:
        self._answer = answer
        self._clock = clock
        self._limits = limits
        self._security = security
        self._timers = timers
        self._deadlines = deadlines
        self._limited_log = RateLimitedLogger(logger, clock)
        self._audit = Audit(clock)
        self._bodies = _Bodies(limits.bodies_bytes)
        self._connections = Tasks()
        self._by_host: Counter[str] = Counter()
        self._checking = asyncio.Lock()
        """Passwords are checked one after the other. Unauthenticated clients get one core at most, and one of
        the process's threads for blocking work."""

    @contextlib.asynccontextmanager
    async def serve(self, listener: Listener) -> AsyncIterator[None]:
        """Serve the clients of `listener`, until the context ends, which closes it."""
        listener.start(asyncio.get_running_loop(), self._timers, self._limited_log, self._accepted)
        try:
            yield
        finally:
            listener.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._deadlines.close):
                    await self._connections.finished()
            await self._connections.close()

    def _accepted(self, listener: Listener, sock: socket.socket, host: str, _: int) -> None:
        limits = self._limits
        if len(self._connections) >= limits.connections or self._by_host[host] >= limits.connections_per_host:
            self._limited_log.warn("crowd", "closing HTTP connection of %s: too many connections", host)
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
                while await self._serve_request(connection, host):
                    if not await connection.has_next(self._limits.idle_s):
                        break
        except TimeoutError:
            self._limited_log.warn("slow", "closing HTTP connection of %s: its deadline has passed", host)
        except (OSError, EOFError) as error:
            if isinstance(error, ssl.SSLError):
                self._limited_log.warn(
                    "tls", "TLS handshake of HTTP client %s failed: %s", host, error.reason or "refused"
                )
            else:
                self._limited_log.warn(
                    "gone", "HTTP client %s closed the connection before the response", host
                )
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
        transport.set_write_buffer_limits(high=0)  # a sent response has left before the connection closes
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        shown, user, until_ms = (None, None, 0.0) if made is None else _certified(made, writer)
        connection = _Connection(reader, writer, shown, user, until_ms)
        try:
            yield connection
        finally:
            # Not awaited: a client that does not read its response has had its time.
            if connection.is_broken:
                transport.abort()
            else:
                transport.close()

    async def _serve_request(self, connection: _Connection, host: str) -> bool:
        """Serve one request; True if the connection may have another."""
        method, version, keeps_alive = "GET", b"1.1", False
        response: HttpResponse | StreamedResponse
        try:
            async with asyncio.timeout(self._deadlines.head):
                head = await connection.head()
            method, version = head.method, head.version
            user = await self._authenticated(head, connection, host)
            with self._bodies.of_request() as take:
                async with asyncio.timeout(self._deadlines.body):
                    body = await connection.body(head, take)
                keeps_alive = bool(self._limits.idle_s) and not head.wants_close and not connection.is_ahead
                certified = connection.certificate_user if self._is_certified(connection) else None
                response = await self._answer(HttpRequest(head, body, user, host, certified))
        except RequestRefused as refused:
            response = refusal(refused)
        except (OSError, EOFError, TimeoutError):
            connection.is_broken = True
            raise
        except Exception as error:  # noqa: BLE001 - one request fails, the server goes on
            self._limited_log.error("fault", "HTTP request of %s failed", host, cause=error)
            response = refusal(
                RequestRefused(
                    HTTPStatus.INTERNAL_SERVER_ERROR, "the request failed; see the log of the server"
                )
            )
        try:
            if isinstance(response, StreamedResponse):
                await self._stream(connection, response, method, version)
                return False
            async with asyncio.timeout(self._deadlines.answer):
                await connection.send(render(response, method, keeps_alive=keeps_alive))
        except (OSError, TimeoutError):
            connection.is_broken = True
            raise
        except Exception as error:  # noqa: BLE001 - the client sees an end without the last chunk
            self._limited_log.error("fault", "HTTP response to %s failed", host, cause=error)
            connection.is_broken = True
            return False
        if keeps_alive:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._deadlines.linger):
                await connection.take_the_rest()
        return False

    def _is_certified(self, connection: _Connection) -> bool:
        """Whether the client has a certificate that has not expired since: a connection may last longer."""
        return self._clock.now_ms() < connection.certified_until_ms

    async def _stream(
        self, connection: _Connection, response: StreamedResponse, method: str, version: bytes
    ) -> None:
        """Send the chunks, until their end or the client's. Each has the deadline of a whole response."""
        left = asyncio.create_task(connection.left())
        async with contextlib.aclosing(response.chunks) as chunks:
            try:
                async with asyncio.timeout(self._deadlines.answer):
                    await connection.send(render_stream_head(response, version))
                while method != "HEAD":
                    following = asyncio.ensure_future(anext(chunks, None))
                    try:
                        await asyncio.wait((following, left), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        if not following.done():
                            following.cancel()
                            await asyncio.wait((following,))
                    if following.cancelled():
                        connection.is_broken = True
                        return
                    chunk = following.result()
                    if chunk is None:
                        break
                    if chunk:
                        async with asyncio.timeout(self._deadlines.answer):
                            await connection.send(render_chunk(chunk, version))
                if method != "HEAD":
                    await connection.send(render_chunk(b"", version))
            finally:
                left.cancel()
                await asyncio.wait((left,))

    async def _authenticated(self, head: RequestHead, connection: _Connection, host: str) -> str:
        try:
            _check_origin(head, is_local=self._security.is_local)
            authorization = head.header(b"authorization")
        except RequestRefused as refused:
            self._note(head, ANONYMOUS.name, host, refused.message, is_allowed=False)
            raise
        access = self._security.access
        if access.is_open:
            self._note(head, ANONYMOUS.name, host, "no authentication is configured", is_allowed=True)
            return ANONYMOUS.name
        shown = None if authorization is None else authorization.decode("latin-1")
        certified = connection.certificate_of if self._is_certified(connection) else None
        async with self._checking:
            user = await asyncio.to_thread(access.accept, shown, certificate_of=certified)
        if user is not None:
            how = "by a certificate" if user == certified else "by its credentials"
            self._note(head, user, host, how, is_allowed=True)
            return user
        why = "no credentials" if shown is None else "wrong credentials"
        self._note(head, ANONYMOUS.name, host, why, is_allowed=False)
        if shown is not None:
            self._limited_log.warn("credentials", "HTTP request of %s refused: wrong credentials", host)
            await asyncio.sleep(REFUSAL_PAUSE_S)
        asked = tuple((b"www-authenticate", each.encode()) for each in access.schemes)
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, "authentication is required", asked)

    def _note(self, head: RequestHead, user: str, host: str, because: str, *, is_allowed: bool) -> None:
        """Audit line without the query, which may hold a secret."""
        principal, path = KafkaPrincipal.user(user), head.path.decode("latin-1")
        self._audit.note_http(principal, host, head.method, path, because, is_allowed=is_allowed)


def _certified(made: ListenerContext, writer: asyncio.StreamWriter) -> tuple[str | None, str | None, float]:
    """Name of the client certificate, its user if a mapping rule gives it one, and the time of its end. The
    handshake has failed before for an invalid one.
    """
    ssl_object = writer.get_extra_info("ssl_object")
    shown = ssl_object.getpeercert(binary_form=True)
    if shown is None:
        return None, None, 0.0
    principal = made.principal(shown)
    until_ms = ssl.cert_time_to_seconds(ssl_object.getpeercert()["notAfter"]) * 1_000.0
    return (NAMELESS, None, until_ms) if principal is None else (principal.name, principal.name, until_ms)


class _Connection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        certificate_of: str | None,
        certificate_user: str | None,
        certified_until_ms: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = RequestParser()
        self._has_more = False
        self._first = b""
        self.certificate_of = certificate_of
        self.certificate_user = certificate_user
        self.certified_until_ms = certified_until_ms
        self.is_broken = False

    @property
    def is_ahead(self) -> bool:
        """Whether the client has sent more than the request."""
        return self._parser.has_more

    async def has_next(self, idle_s: float) -> bool:
        """Wait for the first byte of another request. False when none comes."""
        self._parser, self._has_more = RequestParser(), False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(idle_s):
                self._first = await self._reader.read(1)
                return bool(self._first)
        return False

    async def left(self) -> None:
        """Wait until the client leaves. A client of a stream has nothing more to say."""
        with contextlib.suppress(OSError):
            await self._reader.read(1)

    async def head(self) -> RequestHead:
        self._has_more = True
        try:
            raw = self._first + await self._reader.readuntil(HEAD_END)
        except asyncio.LimitOverrunError:
            raise RequestRefused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has at most {HEAD_BYTES_MAX} bytes"
            ) from None
        return self._parser.head(raw)

    async def body(self, head: RequestHead, take: Callable[[int], None]) -> bytes:
        if head.body_bytes != 0 and (head.header(b"expect") or b"").lower() == b"100-continue":
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while (found := self._parser.body()) is None:
            received = await self._reader.read(HEAD_BYTES_MAX)
            if not received:
                raise EOFError
            take(len(received))
            self._parser.feed(received)
        self._has_more = False
        return found

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        for at in range(0, len(data), SENT_BYTES):
            self._writer.write(view[at : at + SENT_BYTES])
            await self._writer.drain()

    async def take_the_rest(self) -> None:
        """Read the rest of a refused request: closing while bytes arrive would reset the response."""
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
    except ValueError:  # unbalanced brackets, or brackets around something that is not an address
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "the Host or Origin header is malformed") from None
    if is_other_origin:
        raise RequestRefused(HTTPStatus.FORBIDDEN, "requests of pages of another origin are refused")
    if is_other_host:
        raise RequestRefused(HTTPStatus.FORBIDDEN, "this host is not known by that name")


def _is_own_name(host: str) -> bool:
    """An address or localhost. A host name that another party points at this machine is neither."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
