"""A web service that keeps what it is sent, and answers as the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    drops: bool = False
    """The service has the request, and its answer is lost."""
    is_cut: bool = False
    """The answer's head is sent, and its body never comes."""


class Receiver:
    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/hook"
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer] = lambda _: Answer()

    @property
    def taken(self) -> list[Request]:
        """Requests as a service sees them that knows idempotency keys: the first of each key."""
        first: dict[str, Request] = {}
        for each in self.requests:
            if self.answer(each).status < 300:
                first.setdefault(each.headers["idempotency-key"], each)
        return list(first.values())


@contextmanager
def run_receiver() -> Iterator[Receiver]:
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): text for name, text in self.headers.items()}
            request = Request(self.command, self.path, headers, body)
            receiver.requests.append(request)
            answer = receiver.answer(request)
            if answer.drops:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, text in answer.headers:
                self.send_header(name, text)
            if answer.is_cut:
                self.end_headers()
                ended.wait()
                return
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_POST = do_PUT = do_PATCH = do_DELETE = handle_request  # noqa: N815 - the library's names

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
