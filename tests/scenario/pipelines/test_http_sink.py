"""The HTTP sink without Spark: answers, pauses, redirects, and the requests that rows become."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Run
from barnabas.pipelines.spark.sinks.http import _Form, _receiver, _Sender
from barnabas.pipelines.spark.sinks.http_client import ANSWER_BYTES_MAX, HttpClient, Receiver, Refusal
from barnabas.pipelines.spec.model import Part
from tests.support.ports import free_port
from tests.support.receiver import Answer, Request, run_receiver
from tests.support.receiver import Receiver as Service

PLAIN = Receiver("POST", {"X-From": "test"}, 10.0, 3, 1.0, 30.0)


@pytest.fixture
def service() -> Iterator[Service]:
    with run_receiver() as running:
        yield running


def send(url: str, receiver: Receiver = PLAIN, pauses: list[float] | None = None) -> Refusal | None:
    kept: list[float] = [] if pauses is None else pauses
    with closing(HttpClient(receiver, kept.append)) as client:
        return client.send(url, b"{}", {"Idempotency-Key": "k"})


def test_what_may_pass_is_repeated_after_growing_pauses(service: Service) -> None:
    answers = iter(
        [Answer(503), Answer(429, headers=(("Retry-After", "7"),)), Answer(drops=True), Answer(201)]
    )
    service.answer = lambda _: next(answers)
    pauses: list[float] = []
    assert send(service.url, pauses=pauses) is None
    assert [each.headers["idempotency-key"] for each in service.requests] == ["k"] * 4
    assert pauses[1] == 7.0
    assert 0.5 <= pauses[0] <= 1.0
    assert 2.0 <= pauses[2] <= 4.0


def test_a_pause_has_a_bound_whatever_the_receiver_asks(service: Service) -> None:
    service.answer = lambda _: Answer(503, headers=(("Retry-After", "99999999"),))
    pauses: list[float] = []
    with pytest.raises(PipelineFailed, match="cannot serve after 4 attempts: 503"):
        send(service.url, pauses=pauses)
    assert pauses == [30.0] * 3


def test_a_receiver_that_is_not_there_is_waited_for() -> None:
    with pytest.raises(Away, match="does not answer"):
        send(f"http://127.0.0.1:{free_port()}/")


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422])
def test_a_refusal_is_told_and_not_repeated(service: Service, status: int) -> None:
    service.answer = lambda _: Answer(status, b"no such\n order")
    refusal = send(service.url)
    assert refusal is not None
    assert refusal.status == status
    assert refusal.reason.endswith(": no such order")
    assert len(service.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_refused_sender_is_no_refused_row(service: Service, status: int) -> None:
    service.answer = lambda _: Answer(status)
    with pytest.raises(PipelineFailed, match="refuses the sender") as raised:
        send(service.url + "?token=hunter2")
    assert "hunter2" not in str(raised.value)


def test_redirects_keep_to_the_host_unless_others_are_allowed(service: Service) -> None:
    with run_receiver() as other:
        target = other.url.replace("127.0.0.1", "localhost")
        service.answer = lambda _: Answer(307, headers=(("Location", target),))
        receiver = replace(PLAIN, headers={"Authorization": "Bearer t"})
        with pytest.raises(PipelineFailed, match="which redirect_hosts does not allow"):
            send(service.url, receiver)
        assert send(service.url, replace(receiver, redirect_hosts=("localhost",))) is None
        (request,) = other.requests
        assert (request.method, request.body, request.headers.get("authorization")) == ("POST", b"{}", None)
        assert service.requests[-1].headers["authorization"] == "Bearer t"


def test_redirects_of_the_same_host_end(service: Service) -> None:
    def answer(request: Request) -> Answer:
        if request.path == "/new":
            return Answer(204)
        location = {"/hook": "/new", "/around": "/around"}[request.path]
        return Answer(308, headers=(("Location", location),))

    service.answer = answer
    assert send(service.url) is None
    with pytest.raises(PipelineFailed, match="redirects more than 5 times"):
        send(service.url.replace("/hook", "/around"))
    service.answer = lambda _: Answer(302, headers=(("Location", "/new"),))
    with pytest.raises(PipelineFailed, match="redirects by 302: write its target"):
        send(service.url)


def test_of_an_endless_answer_a_part_is_read(service: Service) -> None:
    service.answer = lambda _: Answer(200, b"x" * (ANSWER_BYTES_MAX * 20))
    with closing(HttpClient(PLAIN, lambda _: None)) as client:
        for _ in range(2):
            assert client.send(service.url, b"{}", {}) is None


def test_an_answer_counts_by_its_status_even_if_its_body_never_ends(service: Service) -> None:
    """The receiver has the body of the request, so another request would double the rows."""
    for headers in ((("Content-Length", "10"),), (("Transfer-Encoding", "chunked"),)):
        service.answer = lambda _, headers=headers: Answer(200, headers=headers, is_cut=True)  # type: ignore[misc]
        service.requests.clear()
        assert send(service.url, replace(PLAIN, timeout_s=0.5)) is None
        assert len(service.requests) == 1


def test_an_answer_that_drips_costs_no_more_than_the_timeout() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
                while not ended.wait(0.05):
                    connection.sendall(b"x")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        done: list[Any] = []
        sending = threading.Thread(
            target=lambda: done.append(send(url, replace(PLAIN, timeout_s=0.5))), daemon=True
        )
        sending.start()
        sending.join(10)
        found = list(done)
        ended.set()
        dripping.join()
        sending.join()
        assert found == [None]


@pytest.mark.parametrize(
    "asked", ["Mon, 01 Jan 99999 00:00:00 GMT", "Mon, 45 Foo 2024", "-5", "9" * 400, "x"]
)
def test_a_pause_that_makes_no_sense_is_no_error(service: Service, asked: str) -> None:
    answers = iter([Answer(503, headers=(("Retry-After", asked),)), Answer()])
    service.answer = lambda _: next(answers)
    pauses: list[float] = []
    assert send(service.url, pauses=pauses) is None
    assert 0.5 <= pauses[0] <= 30.0


@pytest.mark.parametrize("target", ["http://[::1", "http://127.0.0.1:99999999/x"])
def test_a_redirect_to_no_address_is_told(service: Service, target: str) -> None:
    service.answer = lambda _: Answer(307, headers=(("Location", target),))
    with pytest.raises(PipelineFailed, match="an unusable location"):
        send(service.url, replace(PLAIN, redirect_hosts=("127.0.0.1",)))


def test_secrets_in_headers_stay_with_the_first_host(service: Service) -> None:
    with run_receiver() as other:
        service.answer = lambda _: Answer(307, headers=(("Location", other.url),))
        headers = {"X-Api-Key": "k", "X-Signed": "s", "X-From": "test"}
        allowed = replace(
            PLAIN, headers=headers, secret_headers=frozenset(("x-signed",)), redirect_hosts=("127.0.0.1",)
        )
        assert send(service.url, allowed) is None
        (found,) = other.requests
        assert found.headers["x-from"] == "test"
        assert not {"x-api-key", "x-signed"} & found.headers.keys()


# --- rows ---

FORM = _Form("", 1, 1_000_000, False, "ignore", "Idempotency-Key", "application/json")


def deliver(
    service: Service, rows: list[tuple[Any, ...]], *, batch: int = 0, path: str = "", **form: Any
) -> Any:
    sender = _Sender(PLAIN, replace(FORM, url=service.url + path, **form))
    return sender.send_all(rows, "query", batch)  # type: ignore[arg-type]


def row(at: int, value: Any = None, key: bytes | None = None) -> tuple[Any, ...]:
    body = json.dumps({"n": at} if value is None else value).encode()
    return key, bytearray(body), "orders", f"orders/0/{at}"


def test_a_row_has_the_same_key_whenever_it_is_sent(service: Service) -> None:
    deliver(service, [row(0), row(1), row(1), row(2, {"n": 1})], batch=4)
    deliver(service, [row(2, {"n": 1}), row(0), row(1), row(1)], batch=5)  # planned again, in other batches
    keys = [each.headers["idempotency-key"] for each in service.requests]
    assert len(set(keys)) == 4
    assert sorted(keys[:4]) == sorted(keys[4:])
    _Sender(PLAIN, replace(FORM, url=service.url)).send_all([row(0)], "another query", 4)  # type: ignore[list-item]
    assert service.requests[-1].headers["idempotency-key"] not in keys


def test_requests_are_bounded_in_rows_and_bytes(service: Service) -> None:
    rows = [row(at, "x" * 97) for at in range(10)]  # 99 bytes each
    deliver(service, rows, batch_records=4, body_bytes_max=320)
    sizes = [len(json.loads(each.body)) for each in service.requests]
    assert sizes == [3, 3, 3, 1]
    assert max(len(each.body) for each in service.requests) <= 320
    service.requests.clear()
    deliver(service, rows, batch_records=4, is_lines=True)
    assert [each.body.count(b"\n") for each in service.requests] == [4, 4, 2]
    report = deliver(service, [row(0, "x" * 1_000_000), row(1)])
    assert [each.record for each in report.refused] == ["orders/0/0"]
    assert "is larger than max_body_bytes 1000000" in report.refused[0].reason


def test_of_a_refused_request_only_the_bad_rows_are_refused(service: Service) -> None:
    service.answer = lambda request: Answer(422, b"seven") if b'"n": 7' in request.body else Answer()
    report = deliver(service, [row(at) for at in range(20)], batch_records=20)
    assert (report.rows, [each.record for each in report.refused]) == (20, ["orders/0/7"])
    found = [each["n"] for request in service.taken for each in json.loads(request.body)]
    assert sorted(found) == [at for at in range(20) if at != 7]


def test_keys_in_addresses_cannot_lead_elsewhere(service: Service) -> None:
    keys = [b"a/../b?c#d", b"..", b"", None, b"\xff", "é ".encode()]
    report = deliver(service, [row(at, key=key) for at, key in enumerate(keys)], path="/{key}")
    assert [each.path for each in service.requests] == ["/hook/a%2F..%2Fb%3Fc%23d", "/hook/%C3%A9%20"]
    assert [each.record for each in report.refused] == [f"orders/0/{at}" for at in (1, 2, 3, 4)]


@pytest.mark.parametrize("way", ["ignore", "delete", "fail"])
def test_tombstones_do_what_the_spec_says(service: Service, way: str) -> None:
    rows = [row(0, key=b"a"), (b"a", None, "orders", "orders/0/1"), row(2, key=b"b")]
    report = deliver(service, rows, path="/{key}", tombstones=way)
    methods = [(each.method, each.path) for each in service.requests]
    expected = [("POST", "/hook/a"), ("POST", "/hook/b")]
    assert methods == ([expected[0], ("DELETE", "/hook/a"), expected[1]] if way == "delete" else expected)
    assert [each.record for each in report.refused] == (["orders/0/1"] if way == "fail" else [])


def test_an_empty_value_is_sent_as_it_is(service: Service) -> None:
    deliver(service, [(b"k", bytearray(), "orders", "orders/0/0")])
    assert [each.body for each in service.requests] == [b""]


def run_of(sink: dict[str, Any]) -> tuple[Part, Run]:
    from barnabas.pipelines.spec.options.http import HTTP

    return Part("http", HTTP.with_defaults(sink)), Run.__new__(Run)


@pytest.mark.parametrize(
    ("url", "more", "said"),
    [
        ("http://host/all", {"tombstones": "delete"}, "tombstones: delete needs {key}"),
        ("http://host/{key}", {"batch_records": 5}, "exclude each other"),
        ("http://{key}/", {}, "in the host"),
        ("ftp://host/", {}, "not http"),
    ],
)
def test_an_address_in_a_reference_is_checked_like_any_other(
    monkeypatch: pytest.MonkeyPatch, url: str, more: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("HOOK", url)
    with pytest.raises(PipelineFailed, match=re.escape(said)):
        _Form.of(*run_of({"url": "${env:HOOK}", **more}))


@pytest.mark.parametrize("secret", ["s3cret\nX-Admin: 1", "s3c\rret", "s3crét\u2013"])
def test_a_secret_that_no_header_can_hold_is_not_told(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv("TOKEN", secret)
    for sink in ({"token": "${env:TOKEN}"}, {"headers": {"X-Key": "${env:TOKEN}"}}):
        with pytest.raises(PipelineFailed, match="header") as raised:
            _receiver(*run_of({"url": "http://host/", **sink}))
        assert "s3c" not in str(raised.value)


def test_a_secret_is_sent_without_the_line_break_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret\n")
    receiver = _receiver(*run_of({"url": "http://host/", "token": "${env:TOKEN}"}))
    assert receiver.headers["Authorization"] == "Bearer s3cret"
