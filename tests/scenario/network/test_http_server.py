"""The small HTTP server on a real socket: what clients may do to it, and what they may not."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from tests.support.manual_time import ManualClock

from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.dynamic.loggers import AUDIT
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.limits import AUDIT_LINES_PER_SECOND_MAX, LOG_LINES_PER_SECOND_MAX
from barnabas.core.reporting.metrics import Metrics
from barnabas.network.http.messages import BODY_BYTES_MAX, CHUNKS_MAX, HttpResponse
from barnabas.network.http.server import (
    CONNECTIONS_PER_HOST_MAX,
    DEADLINES,
    LIMITS,
    SMALL_BODY_BYTES,
    Deadlines,
    HttpRequest,
    HttpServer,
    Limits,
    bind_http,
)
from barnabas.node.runtime import LoopScheduler
from barnabas.security.http.access import HttpAccess
from barnabas.security.http.settings import http_security

IMPATIENT = Deadlines(head=0.1, body=0.1)
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
Answer = Callable[[HttpRequest], Awaitable[HttpResponse]]


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, request.user.encode() + b" " + request.body)


@asynccontextmanager
async def served(
    answer: Answer = echo,
    deadlines: Deadlines = DEADLINES,
    users: Path | None = None,
    clock: Clock | None = None,
    settings: Mapping[str, str] | None = None,
    limits: Limits = LIMITS,
) -> AsyncIterator[int]:
    values = {**BROKER_KEYS.defaults(), "http.users.file": users, **(settings or {})}
    endpoint, clock = Endpoint("127.0.0.1", 0), clock or SystemClock()
    security = http_security(values, "page", endpoint, clock, Metrics(), is_local=True)
    server = HttpServer(answer, security, clock, LoopScheduler(asyncio.get_running_loop()), deadlines, limits)
    listener = bind_http(endpoint)
    async with server.serve(listener):
        yield listener.bound.endpoint.port


async def ask(port: int, request: bytes) -> bytes:
    """Received bytes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


async def ask_or_be_cut_off(port: int, request: bytes) -> bytes:
    try:
        return await ask(port, request)
    except ConnectionError:  # closed before it had read everything
        return b""


async def test_a_body_comes_by_its_length_or_in_chunks() -> None:
    async with served() as port:
        whole = await ask(port, b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nhello")
        assert whole.startswith(b"HTTP/1.1 200 OK\r\n")
        assert whole.endswith(b"\r\n\r\nANONYMOUS hello")
        chunked = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
        chunked += b"Expect: 100-continue\r\n\r\n"
        parts = await ask(port, chunked + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n")
        assert parts.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        assert parts.endswith(b"ANONYMOUS hello")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), 413),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://elsewhere.test\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: localhost:80\r\nOrigin: http://localhost:80\r\n\r\n", 200),
    ],
)
async def test_what_is_refused_hears_so(request_bytes: bytes, status: int) -> None:
    async with served() as port:
        answer = await ask(port, request_bytes)
    assert answer.startswith(b"HTTP/1.1 %d " % status)


async def test_many_chunks_are_one_body_that_is_bounded() -> None:
    size = 1 << 20
    chunk = b"%x\r\n" % size + bytes(size) + b"\r\n"
    request = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * (
        BODY_BYTES_MAX // size + 1
    )
    async with served(deadlines=Deadlines(linger=60)) as port:
        assert (await ask(port, request)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "beginning", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhal"]
)
async def test_who_is_slow_is_closed(beginning: bytes) -> None:
    async with served(deadlines=IMPATIENT) as port:
        assert await ask_or_be_cut_off(port, beginning) == b""


async def test_who_does_not_take_an_answer_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def large(_: HttpRequest) -> HttpResponse:
        return HttpResponse(200, bytes(64 << 20))

    async with served(large, Deadlines(answer=0.1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(GET)
        async with asyncio.timeout(60):
            while "its deadline has passed" not in caplog.text:  # noqa: ASYNC110 - the log has no event to wait for
                await asyncio.sleep(0.01)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(64 << 20)
        writer.close()


async def test_one_address_has_only_so_many_connections() -> None:
    async with served() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_PER_HOST_MAX)]
        for _, writer in held:
            writer.write(b"GET / HT")
        assert await ask_or_be_cut_off(port, GET) == b""
        held[0][1].write(b"TP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await held[0][0].read()).startswith(b"HTTP/1.1 200 ")
        for _, writer in held:
            writer.close()


async def test_nothing_of_a_body_is_read_before_its_sender_is_known(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice=secret\n")
    async with served(users=users) as port:
        refused = await ask(
            port,
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
        )
        assert refused.startswith(b"HTTP/1.1 401 ")
        assert b"www-authenticate: Basic" in refused
        for shown, status in (("alice:secret", 200), ("alice:wrong", 401), ("bob:secret", 401)):
            authorization = b"Authorization: Basic " + base64.b64encode(shown.encode())
            answer = await ask(port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + authorization + b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 %d " % status), shown


async def test_each_decision_is_a_line_of_the_audit_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Denials by default, permissions where they are wanted; no secret, and no query, which may hold one."""
    users = tmp_path / "users"
    users.write_text("alice=secret\n")
    caplog.set_level(logging.DEBUG, AUDIT)
    async with served(users=users) as port:
        await ask(port, b"GET /metrics?token=hidden HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        for shown in ("alice:hidden", "alice:secret"):
            authorization = b"Authorization: Basic " + base64.b64encode(shown.encode())
            await ask(
                port, b"PUT /connectors/x HTTP/1.1\r\nHost: 127.0.0.1\r\n" + authorization + b"\r\n\r\n"
            )
        await ask(port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://elsewhere.test\r\n\r\n")
        await ask(port, b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    records = [record for record in caplog.records if record.name == AUDIT]
    lines = [json.loads(record.message) for record in records]
    common = {"host": "127.0.0.1", "resource_type": "HTTP"}
    assert lines[:4] == [
        {
            "decision": "denied",
            "principal": "User:ANONYMOUS",
            "operation": "GET",
            "resource": "/metrics",
            "rule": "no credentials",
            **common,
        },
        {
            "decision": "denied",
            "principal": "User:ANONYMOUS",
            "operation": "PUT",
            "resource": "/connectors/x",
            "rule": "wrong credentials",
            **common,
        },
        {
            "decision": "allowed",
            "principal": "User:alice",
            "operation": "PUT",
            "resource": "/connectors/x",
            "rule": "by its credentials",
            **common,
        },
        {
            "decision": "denied",
            "principal": "User:ANONYMOUS",
            "operation": "GET",
            "resource": "/",
            "rule": "requests of pages of another origin are refused",
            **common,
        },
    ]
    assert [record.levelno for record in records[:4]] == [20, 20, 10, 20]
    assert len(lines[4]["resource"]) < 300
    assert "hidden" not in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "header",
    [
        b"Host: [",
        b"Host: [x]",
        b"Host: 127.0.0.1\r\nOrigin: http://[",
        b"Host: 127.0.0.1\r\nOrigin: http://[x]:1",
    ],
)
async def test_a_malformed_host_is_refused_and_noted(header: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with served() as port:
        answer = await ask(port, b"GET / HTTP/1.1\r\n" + header + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    (record,) = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert record.name == AUDIT
    assert json.loads(record.message)["rule"] == "the Host or Origin header is malformed"


async def test_a_certificate_has_a_name_in_the_audit_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1", common_name=name, organization_name="Acme")
        issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    settings = {
        "listener.name.page.ssl.keystore.location": str(tmp_path / "server.pem"),
        "listener.name.page.ssl.truststore.location": str(tmp_path / "ca.pem"),
        "listener.name.page.ssl.client.auth": "required",
    }
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.load_cert_chain(tmp_path / "client.pem")
    caplog.set_level(logging.DEBUG, AUDIT)
    async with served(settings=settings) as port, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(GET)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        assert length is not None
        answer += await reader.readexactly(int(length[1]))
        writer.transport.abort()  # uvloop takes half a minute for an end in order
    (line,) = [json.loads(record.message) for record in caplog.records if record.name == AUDIT]
    assert (line["decision"], line["rule"]) == ("allowed", "by a certificate")
    assert line["principal"].startswith("User:CN=client,")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"CN=client," in answer


async def test_denials_are_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users, clock = tmp_path / "users", ManualClock()
    users.write_text("alice=secret\n")
    caplog.set_level(logging.INFO, AUDIT)
    async with served(users=users, clock=clock) as port:
        for _ in range(AUDIT_LINES_PER_SECOND_MAX + 5):
            await ask(port, GET)
        clock.advance(ms=1_000)
        await ask(port, GET)
    lines = [json.loads(record.message) for record in caplog.records if record.name == AUDIT]
    assert len(lines) == AUDIT_LINES_PER_SECOND_MAX + 1
    assert lines[-1]["left_out"] == 5


async def test_passwords_are_checked_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check takes milliseconds of a core: many at once would take all of them."""
    users, at_once, accept = tmp_path / "users", list[int](), HttpAccess.accept
    users.write_text("alice=secret\n")
    running = 0

    def counted(self: HttpAccess, authorization: str | None, *, certificate_of: str | None) -> str | None:
        nonlocal running
        running += 1
        at_once.append(running)
        time.sleep(0.02)
        running -= 1
        return accept(self, authorization, certificate_of=certificate_of)

    monkeypatch.setattr(HttpAccess, "accept", counted)
    async with served(users=users) as port:
        answers = await asyncio.gather(*(ask(port, GET) for _ in range(8)))
    assert all(each.startswith(b"HTTP/1.1 401 ") for each in answers)
    assert at_once == [1] * 8


async def test_a_body_has_only_so_many_chunks() -> None:
    """A byte each, they would keep the loop busy for a minute."""
    request = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (
        CHUNKS_MAX + 1
    )
    async with served(deadlines=Deadlines(linger=60)) as port:
        assert (await ask(port, request + b"0\r\n\r\n")).startswith(b"HTTP/1.1 413 ")


async def test_who_comes_and_goes_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as port:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()
        assert (await ask(port, GET)).startswith(b"HTTP/1.1 200 ")
    assert 1 <= caplog.text.count("closed the connection before the response") <= LOG_LINES_PER_SECOND_MAX


async def test_a_request_that_fails_leaves_the_server_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: HttpRequest) -> HttpResponse:
        raise RuntimeError("not foreseen")

    async with served(fail) as port:
        for _ in range(2):
            answer = await ask(port, GET)
            assert answer.startswith(b"HTTP/1.1 500 ")
            assert b"not foreseen" not in answer
    assert "not foreseen" in caplog.text


async def test_bodies_that_are_received_together_have_a_memory() -> None:
    """Small requests are served also while large ones take all of it."""
    large = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (4 * SMALL_BODY_BYTES)
    small = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nsmall"
    received = asyncio.Event()
    answered = asyncio.Event()

    async def slow(request: HttpRequest) -> HttpResponse:
        if len(request.body) > SMALL_BODY_BYTES:
            received.set()
            await answered.wait()
        return await echo(request)

    async with served(slow, limits=Limits(bodies_bytes=5 * SMALL_BODY_BYTES)) as port:
        first = asyncio.create_task(ask(port, large + bytes(4 * SMALL_BODY_BYTES)))
        await received.wait()
        refused = await ask_or_be_cut_off(port, large + bytes(4 * SMALL_BODY_BYTES))
        assert refused.startswith(b"HTTP/1.1 503")
        assert (await ask(port, small)).endswith(b"small")
        answered.set()
        assert (await first).startswith(b"HTTP/1.1 200")
        assert (await ask(port, large + bytes(4 * SMALL_BODY_BYTES))).startswith(b"HTTP/1.1 200")
