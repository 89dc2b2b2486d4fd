"""HTTP requests: which are parsed, and which are refused instead of repaired."""

from __future__ import annotations

import pytest

from barnabas.network.http.messages import (
    BODY_BYTES_MAX,
    CHUNKS_MAX,
    HttpResponse,
    RequestHead,
    RequestParser,
    RequestRefused,
    render,
)

HOST = b"Host: localhost"
CHUNKED = b"Transfer-Encoding: chunked"


def head(*lines: bytes) -> bytes:
    return b"\r\n".join((*lines, b"", b""))


def parse_head(raw: bytes) -> RequestHead:
    return RequestParser().head(raw)


def body_of(data: bytes, *headers: bytes, piece_bytes: int = 7) -> bytes | None:
    """The body after a head with these headers, fed in pieces."""
    parser = RequestParser()
    assert parser.head(head(b"POST / HTTP/1.1", HOST, *headers)).method == "POST"
    for start in range(0, len(data), piece_bytes):
        assert parser.body() is None
        parser.feed(data[start : start + piece_bytes])
    return parser.body()


def test_a_request_is_taken_apart() -> None:
    found = parse_head(head(b"PUT /a%20b?c=d&e HTTP/1.1", b"Host: x:1 ", b"X-Empty:", b"Content-Length: 12"))
    assert (found.method, found.path, found.query) == ("PUT", b"/a%20b", b"c=d&e")
    assert found.headers == ((b"host", b"x:1"), (b"x-empty", b""), (b"content-length", b"12"))
    assert found.body_bytes == 12
    assert found.header(b"missing") is None


@pytest.mark.parametrize(
    "lines",
    [
        (b"GET / HTTP/1.1",),
        (b"GET http://other/ HTTP/1.1",),
        (b"GET / HTTP/2.0",),
        (b"GET /a b HTTP/1.1",),
        (b"get / HTTP/1.1",),
        (b"\x16\x03\x01",),
        (b"GET / HTTP/1.1", b"Name : x"),
        (b"GET / HTTP/1.1", b"A: b", b" folded"),
        (b"GET / HTTP/1.1", b"A: b\nC: d"),
        (b"GET / HTTP/1.1", b"A: \0"),
        (b"GET / HTTP/1.1", b"no colon"),
        (b"GET / HTTP/1.1", HOST, b"Name : x"),
        (b"GET / HTTP/1.1", HOST, b" folded"),
        (b"GET / HTTP/1.1", HOST, b"A: b\nC: d"),
        (b"GET / HTTP/1.1", HOST, b"A: b\rC: d"),
        (b"GET / HTTP/1.1", HOST, b"A: \0"),
        (b"GET / HTTP/1.1", HOST, b"A: \x01"),
        (b"GET / HTTP/1.1", HOST, HOST),
        (b"GET http://other/ HTTP/1.1", HOST),
        (b"GET / HTTP/2.0", HOST),
        (b"get / HTTP/1.1", HOST),
    ],
)
def test_what_is_no_request_is_refused(lines: tuple[bytes, ...]) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_head(head(*lines))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((b"Content-Length: -1",), 400),
        ((b"Content-Length: x",), 400),
        ((b"Content-Length:",), 400),
        ((b"Content-Length: 1,1",), 400),
        ((b"Content-Length: 1", b"Content-Length: 1"), 400),
        ((b"Content-Length: 1", b"Transfer-Encoding: chunked"), 400),
        ((b"Transfer-Encoding: gzip, chunked",), 400),
        ((b"Content-Length: %d" % (BODY_BYTES_MAX + 1),), 413),
    ],
)
def test_a_length_that_is_not_clear_is_refused(headers: tuple[bytes, ...], status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        _ = parse_head(head(b"POST / HTTP/1.1", HOST, *headers)).body_bytes
    assert refused.value.status == status


def test_there_are_only_so_many_headers() -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_head(head(b"GET / HTTP/1.1", HOST, *[b"A: b"] * 100))
    assert refused.value.status == 431


def test_an_incomplete_head_is_refused() -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_head(b"GET / HTTP/1.1\r\nHost: x\r\n")
    assert refused.value.status == 400


def test_a_body_comes_by_its_length_or_in_chunks() -> None:
    assert body_of(b"hello world", b"Content-Length: 11") == b"hello world"
    assert body_of(b"hello", b"Content-Length: 11") is None
    assert body_of(b"3;name=value\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", CHUNKED) == b"hello"
    assert RequestParser().head(head(b"POST / HTTP/1.1", HOST, CHUNKED)).body_bytes is None


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\r\n", 400),
        (b"-1\r\n", 400),
        (b"0x1\r\n", 400),
        (b"1\r\nxy\r\n", 400),
        (b"x" * 20_000, 400),
        (b"0\r\nname: value\r\n\r\n", 400),
        (b"ffffffff\r\n" + bytes(BODY_BYTES_MAX + 1), 413),
        (b"1\r\nx\r\n" * (CHUNKS_MAX + 1), 413),
    ],
)
def test_chunks_are_bounded(data: bytes, status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        body_of(data, CHUNKED, piece_bytes=4096)
    assert refused.value.status == status


def test_chunks_count_when_size_and_data_arrive_apart() -> None:
    with pytest.raises(RequestRefused) as refused:
        body_of(b"1\r\nx\r\n" * (CHUNKS_MAX + 1), CHUNKED, piece_bytes=3)
    assert refused.value.status == 413


def test_an_answer_says_its_length_and_that_it_is_the_last() -> None:
    response = HttpResponse(200, b"body", ((b"content-type", b"text/plain"), (b"content-length", b"99")))
    assert render(response, "GET") == (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody"
    )
    assert render(response, "HEAD").endswith(b"content-length: 4\r\nconnection: close\r\n\r\n")
