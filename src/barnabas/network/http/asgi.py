"""ASGI face of the HTTP server: runs an application of the ASGI standard (Starlette) behind `http.server`.

An answer that comes in one piece is sent with its length. A longer one streams: the application runs in a
task of its own, one chunk ahead of the client at most, and is cancelled when the client leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

from barnabas.network.http.messages import Headers, HttpResponse, StreamedResponse
from barnabas.network.http.server import HttpRequest

CERTIFICATE: Final = "barnabas.client_certificate"
"""Extension of the scope: `user` is that of the client certificate. No header can set it."""

Event = MutableMapping[str, Any]
AsgiApplication = Callable[
    [Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]
]


async def answer_by(
    application: AsgiApplication, request: HttpRequest, *, scheme: str = "http"
) -> HttpResponse | StreamedResponse:
    run = _Run(application, request, scheme)
    return await run.answer()


class _Run:
    """One call of the application."""

    def __init__(self, application: AsgiApplication, request: HttpRequest, scheme: str) -> None:
        self._application = application
        self._request = request
        self._scope = _scope(request, scheme)
        self._status = 500
        self._headers: Headers = ()
        self._sent: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue(1)
        self._is_received = False

    async def answer(self) -> HttpResponse | StreamedResponse:
        task = asyncio.create_task(self._run())
        first = asyncio.create_task(self._sent.get())
        try:
            await asyncio.wait((task, first), return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                task.result()  # raises the application's error
                if self._sent.empty():
                    raise RuntimeError("the application ended without an answer")
            chunk, has_more = await first
            if not has_more:
                await task
                return HttpResponse(self._status, chunk, self._headers)
        except BaseException:
            for each in (task, first):
                each.cancel()
            await asyncio.gather(task, first, return_exceptions=True)
            raise
        return StreamedResponse(self._status, self._chunks(chunk, task), self._headers)

    async def _run(self) -> None:
        await self._application(self._scope, self._receive, self._send)

    async def _chunks(self, chunk: bytes, task: asyncio.Task[None]) -> AsyncGenerator[bytes, None]:
        has_more = True
        try:
            while True:
                yield chunk
                if not has_more:
                    return
                following = asyncio.create_task(self._sent.get())
                try:
                    await asyncio.wait((task, following), return_when=asyncio.FIRST_COMPLETED)
                    if not following.done() and self._sent.empty():
                        task.result()  # raises the application's error
                        return
                    chunk, has_more = await following
                finally:
                    following.cancel()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _receive(self) -> Event:
        if self._is_received:
            await asyncio.Event().wait()  # the task is cancelled when the client leaves
        self._is_received = True
        return {"type": "http.request", "body": self._request.body, "more_body": False}

    async def _send(self, message: Event) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], tuple(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            await self._sent.put((bytes(message.get("body", b"")), bool(message.get("more_body"))))


def _scope(request: HttpRequest, scheme: str) -> Event:
    head = request.head
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": head.version.decode(),
        "method": head.method,
        "scheme": scheme,
        "path": unquote(head.path.decode("ascii", "replace")),
        "raw_path": head.path,
        "root_path": "",
        "query_string": head.query,
        "headers": list(head.headers),
        "client": (request.client_host, 0),
        "extensions": {CERTIFICATE: {"user": request.certificate_user}},
    }
