"""Avro and Protobuf with Confluent's framing and a registry over real HTTP; CSV, text and raw bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.schema_registry import Registry, run_registry
from tests.support.topics import consume, produce

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
OLDER = {**ORDER, "fields": [ORDER["fields"][0], *ORDER["fields"][2:]]}
AT = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with run_registry() as running:
        yield running


def avro(schema: Any, row: dict[str, Any], schema_id: int) -> bytes:
    import fastavro

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, row)
    return b"\x00" + schema_id.to_bytes(4, "big") + stream.getvalue()


def test_avro_of_several_schemas_is_read_and_avro_of_the_columns_is_written(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, registry: Registry
) -> None:
    import fastavro

    source, out, letters = new_topic(), new_topic(), new_topic()
    old = registry.register(f"{source}-value", json.dumps(OLDER))
    new = registry.register(f"{source}-value", json.dumps(ORDER))
    row = {"id": 1, "at": AT, "tags": ["x"]}
    produce(
        bootstrap,
        source,
        [avro(OLDER, row, old), b"\x01junk", avro(ORDER, {**row, "id": 2, "note": "n"}, new)],
    )
    run_spec({
        "name": "avro",
        "source": {"type": "topic", "topics": source, "format": "avro", "schema_registry": registry.url},
        "transforms": [{"sql": "SELECT id, note, at, tags, id * 2 AS twice FROM input"}],
        "sink": {"type": "topic", "topic": out, "format": "avro", "schema_registry": registry.url},
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
    })  # fmt: skip
    found = []
    for each in consume(bootstrap, out):
        assert each.value is not None
        schema = json.loads(registry.schemas[int.from_bytes(each.value[1:5], "big") - 1])
        found.append(fastavro.schemaless_reader(io.BytesIO(each.value[5:]), schema, None))
    assert found == [
        {"id": 1, "note": None, "at": AT, "tags": ["x"], "twice": 2},
        {"id": 2, "note": "n", "at": AT, "tags": ["x"], "twice": 4},
    ]
    assert f"{out}-value" in registry.subjects
    (dead,) = consume(bootstrap, letters)
    assert dead.value == b"\x01junk"
    assert b"zero byte" in dead.headers["__connect.errors.exception.message"]


def test_protobuf_is_read_and_written_by_its_descriptors(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    from barnabas.pipelines.spark.formats.protobuf import message_class

    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    (tmp_path / "order.proto").write_text(
        'syntax = "proto3"; package shop; enum Kind { NEW = 0; OLD = 1; }'
        " message Item { string sku = 1; int32 count = 2; }"
        " message Order { int64 id = 1; optional string note = 2; Kind kind = 3; repeated Item items = 4;"
        " map<string, double> prices = 5; bytes blob = 6; }"
    )
    file = tmp_path / "order.desc"
    assert protoc.main(["protoc", f"-I{tmp_path}", f"--descriptor_set_out={file}", "order.proto"]) == 0
    order = message_class(file.read_bytes(), "shop.Order")
    message = order(id=7, kind=1, items=[{"sku": "a", "count": 2}], prices={"a": 1.5}, blob=b"\x00\xff")
    source, out = new_topic(), new_topic()
    produce(bootstrap, source, [message.SerializeToString()])
    form = {"format": "protobuf", "descriptor_file": str(file), "message": "shop.Order"}
    run_spec({
        "name": "proto",
        "source": {"type": "topic", "topics": source, **form},
        "transforms": [{"filter": "kind = 'OLD' AND note IS NULL AND items[0].count = 2"}],
        "sink": {"type": "topic", "topic": out, **form},
    })  # fmt: skip
    (found,) = consume(bootstrap, out)
    assert order.FromString(found.value) == message


def test_csv_is_read_and_text_is_written_and_topics_are_made(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    source = new_topic()
    out = f"{source}-made"
    produce(bootstrap, source, [b"1,a b", b"2,c"], key=b"k")
    run_spec({
        "name": "csv",
        "source": {
            "type": "topic", "topics": source, "format": "csv",
            "schema": "id INT, name STRING", "key_format": "text",
        },
        "transforms": [{"sql": "SELECT concat(id, ':', name, ':', _key) AS value FROM input"}],
        "sink": {"type": "topic", "topic": out, "format": "text"},
    })  # fmt: skip
    assert [each.value for each in consume(bootstrap, out)] == [b"1:a b:k", b"2:c:k"]


def test_raw_values_are_copied_as_they_are(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    source, out = new_topic(), new_topic()
    values = [b"\x00\xff{no text", b"", b"plain"]
    produce(bootstrap, source, values, key=b"\xfe")
    run_spec({
        "name": "raw",
        "source": {"type": "topic", "topics": source, "format": "raw"},
        "sink": {"type": "topic", "topic": out, "format": "raw"},
    })  # fmt: skip
    found = consume(bootstrap, out)
    assert [each.value for each in found] == values
    assert {each.key for each in found} == {b"\xfe"}
