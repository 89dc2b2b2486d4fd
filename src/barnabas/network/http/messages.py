"""HTTP/1.1 requests and responses, without I/O.

h11 parses a request. Anything ambiguous is refused instead of repaired: folded lines, two lengths, a length
beside chunks. So no proxy and this server can disagree where a request ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from h11 import NEED_DATA, PAUSED, Event

HEAD_END = b"\r\n\r\n"
HEAD_BYTES_MAX = 16 * 1024
HEADERS_MAX = 100
BODY_BYTES_MAX = 4 * 1024 * 1024
CHUNKS_MAX: Final = 4_096
"""Chunks of one body: each takes some work, and the smallest has a byte."""
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_METHOD = re.compile(rb"[A-Z]{1,16}")
_REPAIRED = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n)|\n[ \t]|\ncontent-length:[^\r\n]*,", re.IGNORECASE
)
"""Control characters, bare line ends, folded lines, lists of lengths: h11 repairs them, as the RFC allows."""

Headers = Sequence[tuple[bytes, bytes]]


class RequestRefused(Exception):
    """Error response with this status and message, after which the connection closes."""

    def __init__(self, status: HTTPStatus, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers


class RequestHead(NamedTuple):
    method: str
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    """Names in lower case."""
    version: bytes = b"1.1"

    def header(self, name: bytes) -> bytes | None:
        """The single header of this name; BAD_REQUEST if there are several."""
        found = [value for each, value in self.headers if each == name]
        if len(found) > 1:
            raise _bad(f"the header {name.decode()} appears twice")
        return found[0] if found else None

    @property
    def body_bytes(self) -> int | None:
        """Length of the body; None if it comes in chunks."""
        length, coding = self.header(b"content-length"), self.header(b"transfer-encoding")
        if coding is not None:
            if length is not None:
                raise _bad("the request has a Content-Length and a Transfer-Encoding")
            return None
        return 0 if length is None else bounded(int(length))

    @property
    def wants_close(self) -> bool:
        """Whether the client sends no further request on this connection."""
        wishes = b",".join(value.lower() for name, value in self.headers if name == b"connection")
        return self.version != b"1.1" or b"close" in [each.strip() for each in wishes.split(b",")]


class HttpResponse(NamedTuple):
    status: int
    body: bytes = b""
    headers: Headers = ()


class StreamedResponse(NamedTuple):
    """Response whose end is not known yet. Its generator is closed when the client leaves."""

    status: int
    chunks: AsyncGenerator[bytes, None]
    headers: Headers = ()


class RequestParser:
    """Parser of one request: `head` takes the bytes up to the empty line, `feed` the bytes of the body."""

    def __init__(self) -> None:
        from h11 import SERVER, Connection  # noqa: PLC0415 - not before the broker's ready line

        self._connection = Connection(SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._body = bytearray()
        self._chunks = 0

    def head(self, raw: bytes) -> RequestHead:
        """Head of the request; BAD_REQUEST if it is malformed or incomplete."""
        from h11 import Request  # noqa: PLC0415

        if _REPAIRED.search(raw) or raw.lower().count(b"\ncontent-length:") > 1:
            raise _bad("the head of the request is malformed")
        self._connection.receive_data(raw)
        request = self._next_event()
        if not isinstance(request, Request) or request.http_version not in (b"1.0", b"1.1"):
            raise _bad("this is not an HTTP/1.1 request")
        if _METHOD.fullmatch(request.method) is None or not request.target.startswith(b"/"):
            raise _bad("the request line is malformed")
        if len(request.headers) > HEADERS_MAX:
            raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "there are too many headers")
        path, _, query = request.target.partition(b"?")
        return RequestHead(
            request.method.decode(), path, query, tuple(request.headers), bytes(request.http_version)
        )

    def feed(self, data: bytes) -> None:
        self._connection.receive_data(data)

    @property
    def has_more(self) -> bool:
        """Whether bytes arrived behind the end of the request."""
        return bool(self._connection.trailing_data[0])

    def body(self) -> bytes | None:
        """The whole body; None while more of it has to be received."""
        from h11 import Data, EndOfMessage  # noqa: PLC0415

        while True:
            event = self._next_event()
            if isinstance(event, Data):
                bounded(len(self._body) + len(event.data))
                self._body += event.data
                self._chunks += event.chunk_end
                if self._chunks > CHUNKS_MAX:
                    raise RequestRefused(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {CHUNKS_MAX} chunks"
                    )
            elif isinstance(event, EndOfMessage):
                if event.headers:
                    raise _bad("headers after the last chunk are not supported")
                return bytes(self._body)
            else:
                return None

    def _next_event(self) -> Event | type[NEED_DATA | PAUSED]:
        from h11 import RemoteProtocolError  # noqa: PLC0415

        try:
            return self._connection.next_event()
        except RemoteProtocolError as error:
            raise _bad(f"the request is malformed: {error}") from None


def bounded(body_bytes: int) -> int:
    if body_bytes > BODY_BYTES_MAX:
        raise RequestRefused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {BODY_BYTES_MAX} bytes"
        )
    return body_bytes


def text_response(status: int, text: str, media_type: str = TEXT) -> HttpResponse:
    return HttpResponse(status, text.encode(), ((b"content-type", media_type.encode()),))


def refusal(refused: RequestRefused) -> HttpResponse:
    """Error response in the form of Kafka Connect."""
    body = json.dumps({"error_code": int(refused.status), "message": refused.message}).encode()
    return HttpResponse(refused.status, body, ((b"content-type", JSON.encode()), *refused.headers))


def render(response: HttpResponse, method: str, *, keeps_alive: bool = False) -> bytes:
    framing = b"content-length: %d" % len(response.body)
    head = _render_head(response, framing, keeps_alive=keeps_alive)
    return head + (b"" if method == "HEAD" else response.body)


def render_stream_head(response: StreamedResponse, version: bytes) -> bytes:
    """Head of a response in chunks. HTTP/1.0 has none: there the end of the connection is its end."""
    framing = b"transfer-encoding: chunked" if version == b"1.1" else b"cache-control: no-store"
    return _render_head(response, framing, keeps_alive=False)


def render_chunk(data: bytes, version: bytes) -> bytes:
    """A chunk; the empty one is the last."""
    return b"%x\r\n%b\r\n" % (len(data), data) if version == b"1.1" else data


def _render_head(response: HttpResponse | StreamedResponse, framing: bytes, *, keeps_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {response.status} {_phrase(response.status)}".encode()]
    lines += [
        b"%b: %b" % header
        for header in response.headers
        if header[0] not in (b"content-length", b"connection", b"transfer-encoding")
    ]
    lines += [framing, b"connection: keep-alive" if keeps_alive else b"connection: close", b"", b""]
    return b"\r\n".join(lines)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _bad(message: str) -> RequestRefused:
    return RequestRefused(HTTPStatus.BAD_REQUEST, message)
