"""HTTP/1.1 as far as it is served here, without I/O: the head of a request, and an answer.

A connection has one request. What is doubtful is refused rather than guessed at: folded lines, two lengths, a
length beside chunks, names with spaces. So no proxy and this server can disagree where a request ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

HEAD_END = b"\r\n\r\n"
HEAD_BYTES_MAX = 16 * 1024
HEADERS_MAX = 100
BODY_BYTES_MAX = 4 * 1024 * 1024
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]*) HTTP/1\.[01]")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,10}")

Headers = Sequence[tuple[bytes, bytes]]


class RequestRefused(Exception):
    """Answered with its status and message, and closed."""

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

    def header(self, name: bytes) -> bytes | None:
        """The only one of that name; BAD_REQUEST if there are several."""
        found = [value for each, value in self.headers if each == name]
        if len(found) > 1:
            raise _bad(f"the header {name.decode()} is there twice")
        return found[0] if found else None

    @property
    def body_bytes(self) -> int | None:
        """How long its body is; None if it comes in chunks."""
        length, coding = self.header(b"content-length"), self.header(b"transfer-encoding")
        if coding is not None:
            if coding.lower() != b"chunked" or length is not None:
                raise _bad("the length of the body is not clear")
            return None
        if length is None:
            return 0
        if _LENGTH.fullmatch(length) is None:
            raise _bad("the length of the body is not a number")
        return bounded(int(length))


class HttpResponse(NamedTuple):
    status: int
    body: bytes = b""
    headers: Headers = ()


def parse_head(raw: bytes) -> RequestHead:
    """All up to the empty line; BAD_REQUEST if that is no request."""
    first, *rest = raw.removesuffix(HEAD_END).split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise _bad("this is no request of HTTP/1.1")
    if len(rest) > HEADERS_MAX:
        raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "there are too many headers")
    headers = []
    for each in rest:
        match = _HEADER.fullmatch(each)
        if match is None:
            raise _bad("a header is malformed")
        headers.append((match[1].lower(), match[2]))
    path, _, query = line[2].partition(b"?")
    return RequestHead(line[1].decode(), path, query, tuple(headers))


def parse_chunk_bytes(line: bytes) -> int:
    """The length that stands before a chunk; 0 is the last."""
    digits = line.removesuffix(b"\r\n").partition(b";")[0].strip()
    if re.fullmatch(rb"[0-9A-Fa-f]{1,8}", digits) is None:
        raise _bad("a chunk is malformed")
    return bounded(int(digits, 16))


def bounded(body_bytes: int) -> int:
    if body_bytes > BODY_BYTES_MAX:
        raise RequestRefused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {BODY_BYTES_MAX} bytes"
        )
    return body_bytes


def text_response(status: int, text: str, media_type: str = TEXT) -> HttpResponse:
    return HttpResponse(status, text.encode(), ((b"content-type", media_type.encode()),))


def refusal(refused: RequestRefused) -> HttpResponse:
    """In the form that Connect gives its errors."""
    body = json.dumps({"error_code": int(refused.status), "message": refused.message}).encode()
    return HttpResponse(refused.status, body, ((b"content-type", JSON.encode()), *refused.headers))


def render(response: HttpResponse, method: str) -> bytes:
    lines = [f"HTTP/1.1 {response.status} {_phrase(response.status)}".encode()]
    lines += [
        b"%b: %b" % header
        for header in response.headers
        if header[0] not in (b"content-length", b"connection")
    ]
    lines += [b"content-length: %d" % len(response.body), b"connection: close", b"", b""]
    return b"\r\n".join(lines) + (b"" if method == "HEAD" else response.body)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _bad(message: str) -> RequestRefused:
    return RequestRefused(HTTPStatus.BAD_REQUEST, message)
