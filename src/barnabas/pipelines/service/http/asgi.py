"""ASGI adapter: runs a Starlette application behind `network.http.server`."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp

from barnabas.network.http.messages import HttpResponse
from barnabas.network.http.server import HttpRequest


async def answer_by(application: ASGIApp, request: HttpRequest) -> HttpResponse:
    head = request.head
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": head.method,
        "scheme": "http",
        "path": unquote(head.path.decode("ascii")),
        "raw_path": head.path,
        "root_path": "",
        "query_string": head.query,
        "headers": list(head.headers),
    }
    start: MutableMapping[str, Any] = {}
    body = bytearray()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))

    await application(scope, receive, send)
    return HttpResponse(start["status"], bytes(body), tuple(start.get("headers", ())))
