"""Values in Avro, with a registry of one's own: what they may become is bounded before they are decoded."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import fastavro
import pytest

from barnabas.console.records.avro import RegistryDecoder
from barnabas.console.records.decoding import Undecodable
from tests.support.manual_time import ManualClock

TREE = {
    "type": "record",
    "name": "Tree",
    "namespace": "test",
    "fields": [
        {"name": "label", "type": "string"},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "kind", "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["LEAF", "NODE"]}]},
        {"name": "weights", "type": {"type": "map", "values": "double"}},
    ],
}
LEAF = {"label": "leaf", "children": [], "kind": "LEAF", "weights": {"a": 0.5}}


def doubling(links: int) -> dict[str, Any]:
    """Records of two records each: 2**links of them, in no byte."""
    inner: dict[str, Any] = {"type": "record", "name": "r0", "fields": [{"name": "x", "type": "null"}]}
    for link in range(1, links + 1):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"r{link - 1}"}]
        inner = {"type": "record", "name": f"r{link}", "fields": fields}
    return inner


@contextmanager
def registry(schema: object) -> Iterator[str]:
    """A registry that has this schema under every id."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"schema": json.dumps(schema)}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


async def decoded(schema: object, data: bytes) -> Any:
    with registry(schema) as url:
        return await RegistryDecoder(url, ManualClock()).decode(b"\x00" + bytes(4) + data)


async def test_a_value_of_a_recursive_schema_is_decoded() -> None:
    tree = {**LEAF, "label": "root", "children": [LEAF] * 1_000}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(TREE), tree)
    assert await decoded(TREE, written.getvalue()) == tree


@pytest.mark.parametrize("items", ["null", {"type": "fixed", "name": "f", "size": 0}, doubling(2)])
async def test_an_array_of_items_without_bytes_is_not_decoded(items: object) -> None:
    million = b"\x80\x89\x7a\x00"
    with pytest.raises(Undecodable, match="take no byte"):
        await decoded({"type": "array", "items": items}, million)


async def test_records_that_double_are_not_decoded() -> None:
    with pytest.raises(Undecodable, match="too many parts"):
        await decoded(doubling(22), b"")


async def test_items_that_double_are_not_decoded() -> None:
    fields = [{"name": "n", "type": "int"}, {"name": "d", "type": doubling(16)}]
    items = {"type": "record", "name": "item", "fields": fields}
    with pytest.raises(Undecodable, match="too many parts"):
        await decoded({"type": "array", "items": items}, b"\x80\x01" + bytes(64) + b"\x00")
