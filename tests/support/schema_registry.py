"""A schema registry over real HTTP: as much of Confluent's interface as its clients use."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Reference = dict[str, Any]


class Registry:
    def __init__(self) -> None:
        self.url = ""
        self.schemas: list[str] = []
        self.kinds: list[str] = []
        self.references: list[list[Reference]] = []
        self.subjects: dict[str, list[int]] = {}
        self.compatibility: dict[str, str] = {"": "BACKWARD"}
        self.asked: list[str] = []
        """Paths of all requests."""
        self.authorizations: set[str | None] = set()
        self.before: Callable[[], None] = lambda: None
        """Called before each answer: a registry that is slow, or hangs."""

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: Sequence[Reference] = ()
    ) -> int:
        known = list(zip(self.schemas, self.kinds, self.references, strict=True))
        if (schema, kind, list(references)) not in known:
            self.schemas.append(schema)
            self.kinds.append(kind)
            self.references.append(list(references))
            known.append((schema, kind, list(references)))
        schema_id = known.index((schema, kind, list(references))) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        path = path.partition("?")[0]
        if path == "/subjects":
            return 200, list(self.subjects)
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            number = int(found.group(1))
            if 0 < number <= len(self.schemas):
                return 200, self._schema(number)
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if method in ("PUT", "DELETE") or path.startswith("/compatibility/"):
            return self._change(method, path, body)
        if found := re.fullmatch(r"/config(?:/([^/]+))?", path):
            level = self.compatibility.get(unquote(found.group(1) or ""), self.compatibility[""])
            return 200, {"compatibilityLevel": level}
        if found := re.fullmatch(r"/subjects/([^/]+)/versions(/latest|/\d+)?(/referencedby)?", path):
            subject = unquote(found.group(1))
            if method == "POST":
                references = body.get("references", ())
                kind = body.get("schemaType", "AVRO")
                return 200, {"id": self.register(subject, body["schema"], kind, references)}
            if subject in self.subjects:
                return self._version(subject, found.group(2), is_uses=bool(found.group(3)))
        return 404, {"error_code": 40401, "message": "Subject not found"}

    def _change(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        kind, *names = [unquote(each) for each in path.split("/")[1:]]
        if kind == "compatibility":
            return self._fits(names[1], body["schema"])
        if kind == "config" and method == "PUT":
            self.compatibility[names[0]] = body["compatibility"]
            return 200, body
        if len(names) == 3:
            del self.subjects[names[0]][int(names[2]) - 1]
            return 200, int(names[2])
        return 200, self.subjects.pop(names[0], [])

    def _fits(self, subject: str, schema: str) -> tuple[int, Any]:
        """A rule for tests: a schema with the word `misfit` does not fit."""
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": "Subject not found"}
        fits = "misfit" not in schema
        return 200, {"is_compatible": fits, "messages": [] if fits else ["<b>READER_FIELD_MISSING</b>"]}

    def _version(self, subject: str, place: str | None, *, is_uses: bool) -> tuple[int, Any]:
        ids = self.subjects[subject]
        if place is None:
            return 200, list(range(1, len(ids) + 1))
        version = len(ids) if place == "/latest" else int(place[1:])
        if not 1 <= version <= len(ids):
            return 404, {"error_code": 40402, "message": "Version not found"}
        if is_uses:
            wanted = (subject, version)
            return 200, [
                at + 1
                for at, uses in enumerate(self.references)
                if wanted in [(each["subject"], each["version"]) for each in uses]
            ]
        number = ids[version - 1]
        return 200, {"subject": subject, "id": number, "version": version, **self._schema(number)}

    def _schema(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = {"schema": self.schemas[number - 1]}
        if self.kinds[number - 1] != "AVRO":
            found["schemaType"] = self.kinds[number - 1]
        if self.references[number - 1]:
            found["references"] = self.references[number - 1]
        return found


@contextmanager
def run_registry() -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            registry.asked.append(self.path)
            registry.authorizations.add(self.headers.get("Authorization"))
            registry.before()
            code, answer = registry.answer(self.command, self.path, body)
            payload = json.dumps(answer).encode()
            try:
                self.send_response(code)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)
            except OSError:
                """The client has given up."""

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the names that http.server calls

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
