"""Avro schemas and Spark's types: names used again, times of day, what neither side has."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("fastavro", reason="fastavro is not installed")

import fastavro
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.context.run_context import PipelineFailed
from barnabas.pipelines.spark.formats.avro import _reader, _writer, avro_schema, spark_type


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields], **more}


COLOR = {"type": "enum", "name": "Color", "symbols": ["RED"]}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}


@pytest.mark.parametrize("again", ["Color", "art.Color"])
def test_a_named_type_may_be_used_again(again: str) -> None:
    found = spark_type(
        record(("a", COLOR), ("b", ["null", again]), ("p", POINT), ("q", "Point"), namespace="art")
    )
    assert found.simpleString() == "struct<a:string,b:string,p:struct<x:int>,q:struct<x:int>>"


def test_unknown_and_recursive_avro_names_are_reported() -> None:
    with pytest.raises(PipelineFailed, match="'Shape' is unknown"):
        spark_type(record(("a", "Shape")))
    with pytest.raises(PipelineFailed, match="'R' is recursive"):
        spark_type(record(("next", ["null", "R"])))


def test_times_of_day_are_text_and_are_written_back() -> None:
    schema = record(
        ("t", {"type": "int", "logicalType": "time-millis"}),
        ("u", ["null", {"type": "long", "logicalType": "time-micros"}]),
    )
    row = {"t": dt.time(1, 2, 3, 4_000), "u": dt.time(5, 6, 7, 8)}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, row)
    text = json.dumps(schema)
    read = _reader(text, None)(stream.getvalue())
    assert read == {"t": "01:02:03.004000", "u": "05:06:07.000008"}
    assert spark_type(schema).simpleString() == "struct<t:string,u:string>"
    assert _writer(text, None)({"t": "01:02:03.004", "u": "05:06:07.000008"}) == stream.getvalue()


def test_local_moments_are_written_as_such() -> None:
    assert avro_schema(T.TimestampNTZType(), "n")["logicalType"] == "local-timestamp-micros"
