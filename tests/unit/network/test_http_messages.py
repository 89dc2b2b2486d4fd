"""Heads of requests: what is understood, and what is refused rather than guessed at."""

from __future__ import annotations

import pytest

from barnabas.network.http_messages import (
    BODY_BYTES_MAX,
    HttpResponse,
    RequestRefused,
    parse_chunk_bytes,
    parse_head,
    render,
)


def head(*lines: bytes) -> bytes:
    return b"\r\n".join((*lines, b"", b""))


def test_a_request_is_taken_apart() -> None:
    found = parse_head(head(b"PUT /a%20b?c=d&e HTTP/1.1", b"Host: x:1 ", b"X-Empty:", b"Content-Length: 12"))
    assert (found.method, found.path, found.query) == ("PUT", b"/a%20b", b"c=d&e")
    assert found.headers == ((b"host", b"x:1"), (b"x-empty", b""), (b"content-length", b"12"))
    assert found.body_bytes == 12
    assert found.header(b"missing") is None


@pytest.mark.parametrize(
    "lines",
    [
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
        ((b"Content-Length: 1,1",), 400),
        ((b"Content-Length: 1", b"Content-Length: 1"), 400),
        ((b"Content-Length: 1", b"Transfer-Encoding: chunked"), 400),
        ((b"Transfer-Encoding: gzip, chunked",), 400),
        ((b"Content-Length: %d" % (BODY_BYTES_MAX + 1),), 413),
    ],
)
def test_a_length_that_is_not_clear_is_refused(headers: tuple[bytes, ...], status: int) -> None:
    found = parse_head(head(b"POST / HTTP/1.1", *headers))
    with pytest.raises(RequestRefused) as refused:
        _ = found.body_bytes
    assert refused.value.status == status


def test_there_are_only_so_many_headers() -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_head(head(b"GET / HTTP/1.1", *[b"A: b"] * 101))
    assert refused.value.status == 431


def test_chunks_have_lengths() -> None:
    assert parse_chunk_bytes(b"1f;name=value\r\n") == 31
    for wrong, status in ((b"\r\n", 400), (b"-1\r\n", 400), (b"0x1\r\n", 400), (b"ffffffff\r\n", 413)):
        with pytest.raises(RequestRefused) as refused:
            parse_chunk_bytes(wrong)
        assert refused.value.status == status


def test_an_answer_says_its_length_and_that_it_is_the_last() -> None:
    response = HttpResponse(200, b"body", ((b"content-type", b"text/plain"), (b"content-length", b"99")))
    assert render(response, "GET") == (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody"
    )
    assert render(response, "HEAD").endswith(b"content-length: 4\r\nconnection: close\r\n\r\n")
