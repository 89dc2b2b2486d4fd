"""Connect's single-message transforms, on static rows: the same column expressions as in a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "id BIGINT, name STRING, at STRING, inner STRUCT<x: INT, y: STRUCT<z: STRING>>, _key BINARY,"
    " _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP,"
    " _headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)

Apply = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def apply(spark: SparkSession) -> Apply:
    """`apply({"type": …}, …)`: the two rows after these transforms."""
    from datetime import UTC, datetime

    from barnabas.pipelines.spark.context.run_context import Run
    from barnabas.pipelines.spark.runner import apply_transforms
    from barnabas.pipelines.spec.validation import load_document

    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    rows = spark.createDataFrame(
        [
            (1, "ada", "2024-05-01 10:00:00", (1, ("a",)), b"k", "orders", 0, 10, moment, [("h", b"v")]),
            (2, "bob", "x", (2, ("b",)), None, "returns", 1, 11, moment, []),
        ],
        COLUMNS,
    )

    def run(*transforms: Any, tolerance: str = "all") -> list[dict[str, Any]]:
        spec = load_document({
            "name": "t", "source": {"type": "topic", "topics": ["t"]}, "sink": {"type": "console"},
            "transforms": list(transforms), "errors": {"tolerance": tolerance},
        })  # fmt: skip
        outcome = apply_transforms(rows, Run(spark, spec, "", ""))
        return [row.asDict(recursive=True) for row in outcome.collect()]

    return run


def test_fields_are_inserted_dropped_renamed_and_masked(apply: Apply) -> None:
    first, second = apply(
        {"type": "InsertField", "topic_field": "topic", "offset_field": "offset"},
        {"type": "InsertField", "static_field": "s", "static_value": "c"},
        {"type": "ReplaceField", "exclude": "at,inner", "renames": "name:user"},
        {"type": "MaskField", "fields": "user", "predicate": "id = 2"},
        {"type": "MaskField", "fields": ["s"], "replacement": "***", "predicate": "id = 2", "negate": True},
    )  # fmt: skip
    assert (first["topic"], first["offset"], first["s"], first["user"]) == ("orders", 10, "***", "ada")
    assert (second["topic"], second["s"], second["user"]) == ("returns", "c", "")
    assert "at" not in first


def test_keys_are_made_extracted_and_hoisted(apply: Apply) -> None:
    first, _ = apply({"ValueToKey": "id,name"})
    assert first["_key"] == {"id": 1, "name": "ada"}
    first, _ = apply({"ValueToKey": "id,name"}, {"type": "ExtractField", "field": "id", "target": "key"})
    assert first["_key"] == 1
    first, _ = apply({"type": "HoistField", "field": "k", "target": "key"})
    assert first["_key"] == {"k": bytearray(b"k")}


def test_values_are_extracted_hoisted_and_flattened(apply: Apply) -> None:
    assert [row["value"] for row in apply({"ExtractField": "inner.y.z"})] == ["a", "b"]
    first, _ = apply({"HoistField": "all"}, {"Flatten": "_"})
    assert first["all_inner_y_z"] == "a"
    assert first["all_id"] == 1


def test_types_and_times_are_converted(apply: Apply) -> None:
    first, second = apply(
        {"Cast": "id:string,name:int32"},
        {"type": "TimestampConverter", "field": "at", "target_type": "unix", "format": "yyyy-MM-dd HH:mm:ss"},
        {"filter": "id = '1'"},
        {"sql": "SELECT * FROM input UNION ALL SELECT * FROM input"},
    )
    assert (first["id"], first["name"]) == ("1", None)
    assert first["at"] == 1714557600000
    assert second == first


def test_topics_are_routed_and_records_dropped(apply: Apply) -> None:
    (row,) = apply(
        {"type": "RegexRouter", "regex": "or(.*)", "replacement": "copy-$1"},
        {"type": "TimestampRouter", "timestamp_format": "yyyyMM"},
        {"type": "Filter", "predicate": "_topic LIKE 'returns%'"},
    )
    assert row["_topic"] == "copy-ders-202405"


def test_headers_are_inserted_and_dropped(apply: Apply) -> None:
    first, second = apply(
        {"type": "InsertHeader", "header": "n", "value_literal": "1"}, {"type": "DropHeaders", "headers": "h"}
    )
    assert [each["key"] for each in first["_headers"]] == ["n"]
    assert second["_headers"] == [{"key": "n", "value": bytearray(b"1")}]


def test_what_is_not_there_is_named(apply: Apply) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    with pytest.raises(PipelineFailed, match="no field 'nme'; there are id, name, at, inner"):
        apply({"MaskField": "nme"})
    with pytest.raises(PipelineFailed, match="needs the column _topic"):
        apply({"sql": "SELECT id FROM input"}, {"type": "RegexRouter", "regex": "a", "replacement": "b"})


def test_a_value_of_one_column_is_written_bare(spark: SparkSession) -> None:
    from barnabas.pipelines.spark.context.run_context import Run
    from barnabas.pipelines.spark.formats.encoding import encode
    from barnabas.pipelines.spec.validation import load_document

    spec = load_document({"name": "t", "source": {"type": "rate"}, "sink": {"type": "topic", "topic": "o"}})
    run = Run(spark, spec, "", "")
    rows = spark.createDataFrame([('a"b', b"k"), (None, None)], "value STRING, _key BINARY")
    written = encode(rows, spec.sink, run).collect()
    assert [json.loads(row["value"]) if row["value"] else None for row in written] == ['a"b', None]
    assert written[0]["topic"] == "o"
