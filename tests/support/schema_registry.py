"""A schema registry over real HTTP: as much of Confluent's interface as its clients use."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class Registry:
    def __init__(self) -> None:
        self.url = ""
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}

    def register(self, subject: str, schema: str) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            number = int(found.group(1))
            if 0 < number <= len(self.schemas):
                return 200, {"schema": self.schemas[number - 1]}
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if found := re.fullmatch(r"/subjects/([^/]+)/versions(/latest)?", path):
            subject = unquote(found.group(1))
            if method == "POST":
                return 200, {"id": self.register(subject, body["schema"])}
            if subject in self.subjects:
                number = self.subjects[subject][-1]
                return 200, {
                    "subject": subject,
                    "id": number,
                    "version": 1,
                    "schema": self.schemas[number - 1],
                }
        return 404, {"error_code": 40401, "message": "Subject not found"}


@contextmanager
def run_registry() -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            code, answer = registry.answer(self.command, self.path, body)
            payload = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = _serve  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
