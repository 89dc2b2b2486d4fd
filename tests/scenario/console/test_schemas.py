"""Schemas and the records by them, on the pages of a console with a registry, and without one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from tests.support.broker import BarnabasBroker
from tests.support.console import RunningConsole, running_console, submit, words
from tests.support.schema_registry import Registry, run_registry

POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
NEWER = {**POINT, "fields": [*POINT["fields"], {"name": "y", "type": "int", "default": 0}]}
CHAIN = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
PROTO = 'syntax = "proto3";\npackage shop;\nmessage Order { int64 id = 1; string buyer = 2; }\n'
HOSTILE_NAME = '<script>document.title="owned"</script>\u202e/../ ?&#'


@pytest.fixture(scope="module")
def registry(broker: BarnabasBroker) -> Iterator[Registry]:
    with run_registry() as made:
        made.register("points-value", json.dumps(POINT))
        made.register("points-value", json.dumps(NEWER))
        made.register("orders.proto", PROTO, "PROTOBUF")
        made.register("chain", json.dumps(CHAIN))
        made.register(
            HOSTILE_NAME, '"<img src=x onerror=alert(1)>"', "JSON",
            [{"name": "<b>", "subject": "points-value", "version": 2}],
        )  # fmt: skip
        fill(broker.bootstrap)
        yield made


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + payload


def fill(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("schematic", 1, configs={"max.message.bytes": "12000000"})])
    with Producer(bootstrap, max_request_size=12_000_000) as producer:
        for value in (
            framed(1, b"\x0e"),
            framed(2, b"\x02\x04"),
            framed(3, b"\x00\x08\x2a\x12\x03ada"),
            framed(5, b'{"a": 7}'),
            framed(99, b"missing"),
            b"\x08\x2a\x12\x03bob",
            framed(4, b"\x02" * 3_000_000 + b"\x00"),
        ):
            producer.send("schematic", value)
        producer.flush()


@pytest.fixture(scope="module")
def console(broker: BarnabasBroker, registry: Registry) -> Iterator[RunningConsole]:
    with running_console(broker.bootstrap, "--schema-registry", registry.url) as console:
        yield console


def test_subjects_versions_and_differences(console: RunningConsole, registry: Registry) -> None:
    with console.client() as client:
        listed = words(client.get("/schemas"))
        assert "points-value" in listed
        assert "BACKWARD" in listed
        assert "orders.proto" not in words(client.get("/schemas?search=POINT"))
        subject = words(client.get("/schemas/subject?name=points-value"))
        assert "2 of 2" in subject
        assert '"y"' in subject
        assert "schema 5" in subject, "referenced by"
        older = words(client.get("/schemas/subject?name=points-value&version=1"))
        assert '"y"' not in older
        difference = client.get("/schemas/difference?name=points-value&before=1&after=2").text
        assert 'class="line added"' in difference
        assert "&quot;y&quot;" in difference or '"y"' in difference
        assert "same text" in words(client.get("/schemas/difference?name=points-value&before=1&after=1"))
        by_id = words(client.get("/schemas/ids/3"))
        assert "message Order" in by_id
        assert client.get("/schemas/ids/999").status_code == 404
        assert client.get("/schemas/subject?name=missing").status_code == 404
        assert client.get("/schemas/subject?name=points-value&version=9").status_code == 404


def test_the_same_as_json(console: RunningConsole) -> None:
    with console.client() as client:
        page = client.get("/api/schemas?limit=2").json()
        assert page["total"] == 4
        assert len(page["rows"]) == 2
        found = client.get("/api/schemas/subject?name=points-value").json()
        assert (found["version"], found["versions"], found["schema_id"]) == (2, [1, 2], 2)
        assert json.loads(found["schema"]) == NEWER
        assert found["compatibility"] == "BACKWARD"
        assert found["referenced_by"] == [5]
        lines = client.get("/api/schemas/difference?name=points-value&before=1&after=2").json()["lines"]
        assert {change for change, _ in lines} >= {"added", "same"}
        assert client.get("/api/schemas/ids/3").json()["type"] == "PROTOBUF"
        paths = client.get("/api/openapi.json").json()["paths"]
        assert {
            "/api/schemas",
            "/api/schemas/subject",
            "/api/schemas/difference",
            "/api/schemas/ids/{id}",
        } <= (paths.keys())


def test_a_live_filter_reads_values_by_their_schemas(
    console: RunningConsole, broker: BarnabasBroker, registry: Registry
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("live-points", 1)])
    path = "/topics/live-points/messages/live"
    with console.client() as client, client.stream("GET", path, params={"filter": "value.x == 7"}) as tail:
        lines = tail.iter_lines()
        assert any("live" in line for line in lines)
        with Producer(broker.bootstrap) as producer:
            for payload in (b"\x02", b"\x0e", b"\x04"):
                producer.publish("live-points", framed(1, payload))
        found = next(line for line in lines if "<tr" in line)
        assert found.count("<tr") == 1
        assert "avro" in found


def test_records_are_decoded_by_their_schemas(console: RunningConsole) -> None:
    with console.client() as client:
        rows = client.get("/api/topics/schematic/messages?start=oldest").json()["rows"]
        shown = [(row["value"]["format"], row["value"]["text"]) for row in rows]
        assert [(kind, json.loads(text)) for kind, text in shown[:4]] == [
            ("avro", {"x": 7}),
            ("avro", {"x": 1, "y": 2}),
            ("protobuf", {"id": 42, "buyer": "ada"}),
            ("json", {"a": 7}),
        ]
        assert "Schema not found" in rows[4]["value"]["problem"]
        assert "levels deep" in rows[6]["value"]["problem"]
        assert rows[0]["value"]["schema_id"] == 1
        page = words(client.get("/topics/schematic/records/0/2"))
        assert "Decoded by protobuf, schema 3" in page
        matching = client.get(
            "/api/topics/schematic/messages", params={"filter": 'value.buyer == "ada"'}
        ).json()
        assert [row["offset"] for row in matching["rows"]] == [2]
        raw = client.get("/api/topics/schematic/messages?start=oldest&value=protobuf").json()["rows"]
        assert raw[5]["value"]["text"] == '1:VARINT 42\n2:LEN {"bob"}'


def test_a_schema_of_a_user_decodes_for_that_user(console: RunningConsole) -> None:
    path = "/api/topics/schematic/records/0/5"
    with console.client() as client, console.client() as other:
        form = "/topics/schematic/protobuf"
        bad = submit(client, form, form, part="value", proto="message {", message="")
        assert bad.status_code == 422
        assert "line 1" in words(bad)
        assert submit(client, form, form, part="value", proto=PROTO, message="Nothing").status_code == 422
        given = submit(client, form, form, part="value", proto=PROTO, message="Order")
        assert "decoded as shop.Order" in words(given)
        assert json.loads(client.get(path).json()["value"]["text"]) == {"id": 42, "buyer": "bob"}
        assert other.get(path).json()["value"]["format"] != "protobuf", "another session has its own"
        submit(client, form, f"{form}/forget?part=value")
        assert client.get(path).json()["value"]["format"] != "protobuf"


def test_a_message_of_the_operator_decodes_a_topic(
    broker: BarnabasBroker, registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "orders.proto"
    file.write_text(PROTO)
    arguments = ["--proto", str(file), "--proto-message", "schematic=shop.Order"]
    with running_console(broker.bootstrap, *arguments) as console, console.client() as client:
        found = client.get("/api/topics/schematic/records/0/5").json()["value"]
        assert (found["format"], json.loads(found["text"])) == ("protobuf", {"id": 42, "buyer": "bob"})
        assert "no schema registry" in words(client.get("/schemas"))
        assert client.get("/api/schemas").status_code == 404
    with pytest.raises(RuntimeError, match="no message"):
        with running_console(broker.bootstrap, *arguments[:2], "--proto-message", "t=Nothing"):
            pass
    with pytest.raises(RuntimeError, match="http:// or https://"):
        with running_console(broker.bootstrap, "--schema-registry", "localhost:8081"):
            pass


def test_a_hostile_registry_does_nothing(console: RunningConsole) -> None:
    with console.client() as client:
        subject = {"name": HOSTILE_NAME}
        for answer in (
            client.get("/schemas"),
            client.get("/schemas/subject", params=subject),
            client.get("/schemas/difference", params={**subject, "before": "1", "after": "1"}),
            client.get("/schemas/ids/5"),
        ):
            assert answer.status_code == 200
            assert "<script>document" not in answer.text
            assert "<img src=x" not in answer.text
            assert "\u202e" not in answer.text
        for path in (
            "/schemas/subject?name=" + "x" * 8_000,
            "/schemas/subject?name=..%2f..%2fconfig",
            "/schemas/subject?name=points-value&version=999999999999999999999",
            "/schemas/difference?name=points-value",
            "/schemas/difference?name=points-value&before=a&after=%00",
            "/schemas/ids/99999999999999999999",
            "/schemas?offset=-1&limit=0&search=" + "(" * 1_000,
        ):
            answer = client.get(path)
            assert answer.status_code < 500, path
            assert "Traceback" not in answer.text


def hang(released: threading.Event) -> None:
    released.wait(60)


def test_a_registry_that_hangs_holds_no_page(broker: BarnabasBroker, registry: Registry) -> None:
    with run_registry() as slow:
        released = threading.Event()
        slow.before = partial(hang, released)
        try:
            with running_console(broker.bootstrap, "--schema-registry", slow.url) as console:
                with console.client() as client:
                    begun = time.monotonic()
                    rows = client.get("/api/topics/schematic/messages?start=oldest").json()["rows"]
                    assert len(rows) == 7
                    assert "registry" in rows[0]["value"]["problem"]
                    for path in ("/schemas", "/schemas/subject?name=x", "/schemas/ids/1"):
                        assert client.get(path).status_code == 503
                        assert "no answer within" in words(client.get(path))
                    assert client.get("/topics").status_code == 200
                    assert time.monotonic() - begun < 45, "far less than the registry hangs"
        finally:
            released.set()
