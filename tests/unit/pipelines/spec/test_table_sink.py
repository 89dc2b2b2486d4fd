"""Table sink: which options go together, and what is refused before Spark starts."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.pipelines.spec.options.value_parsers import size_bytes
from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.pipelines.spec.validation import load_document

CATALOG = {"type": "rest", "uri": "https://catalog.example.org"}


def spec(sink: dict[str, Any], **more: Any) -> dict[str, Any]:
    source = {"type": "topic", "topics": ["orders"], "schema": "id BIGINT, at TIMESTAMP"}
    return {"name": "orders", "source": source, "sink": {"type": "table", **sink}, **more}


@pytest.mark.parametrize(
    ("sink", "complaint"),
    [
        ({}, "needs 'path', the directory of the table"),
        ({"format": "iceberg"}, "or 'catalog' and 'table'"),
        ({"path": "x", "catalog": CATALOG, "table": "a.b"}, "format delta has no catalogue"),
        ({"format": "iceberg", "path": "x", "catalog": CATALOG, "table": "a.b"}, "expected one of them"),
        ({"format": "iceberg", "catalog": CATALOG}, "needs 'catalog' and 'table'"),
        ({"format": "iceberg", "catalog": CATALOG, "table": "orders"}, "such as 'shop.orders'"),
        ({"path": "x", "mode": "append", "key": ["id"]}, "mode append adds every row"),
        ({"path": "x", "key": ["number"]}, "no column 'number'"),
        ({"path": "x", "partition_by": ["day"]}, "no column 'day'"),
        ({"path": "x", "target_file_size": "1 KB"}, "at least 64 KB"),
        ({"path": "x", "target_file_size": "99999999999 GB"}, "at least 64 KB"),
        ({"path": "x", "target_file_size": "large"}, "at least 64 KB"),
        ({"path": "x", "keep": "1 minute"}, "at least an hour"),
        ({"path": "x", "maintenance": -1}, "at least 0"),
        ({"path": "x", "storage": {"AWS_SECRET_ACCESS_KEY": "abc"}}, "in plain text"),
        ({"format": "iceberg", "catalog": {**CATALOG, "token": "abc"}, "table": "a.b"}, "in plain text"),
        (
            {"format": "iceberg", "catalog": {"uri": "postgresql://u:pw@h/d"}, "table": "a.b"},
            "a password in plain text",
        ),
        ({"format": "iceberg", "catalog": {"py-io-impl": "os.path"}, "table": "a.b"}, "a class to load"),
        ({"format": "iceberg", "catalog": {"py-catalog-impl": "x.Y"}, "table": "a.b"}, "a class to load"),
    ],
)
def test_a_combination_that_cannot_work_is_refused(sink: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        load_document(spec(sink))
    assert complaint in str(refused.value)
    assert "abc" not in str(refused.value)


@pytest.mark.parametrize(
    "sink",
    [
        {"path": "lake/orders"},
        {"path": "lake/orders", "key": ["_key"], "partition_by": ["_partition"]},
        {"format": "iceberg", "catalog": {**CATALOG, "token": "${env:TOKEN}"}, "table": "shop.orders"},
        {"path": "x", "target_file_size": "64kb", "keep": "1 hour", "storage": {"AWS_TOKEN": "${env:T}"}},
    ],
)
def test_a_table_is_exactly_once(sink: dict[str, Any]) -> None:
    loaded = load_document(spec(sink))
    assert loaded.guarantee.value == "exactly-once"
    assert load_document(loaded.to_document()) == loaded


def test_updates_of_windows_need_upsert() -> None:
    window = {
        "type": "window",
        "time": "at",
        "size": "1 minute",
        "emit": "updates",
        "aggregates": {"n": "count(*)"},
    }
    source = {"watermark": "at 1 minute"}
    document = spec({"path": "x"}, transforms=[{**window, "aggregates": {"n": "count(*)"}}])
    document["source"] |= source
    with pytest.raises(InvalidSpec, match="expected emit: final, or mode: upsert"):
        load_document(document)
    document["sink"] |= {"mode": "upsert", "key": ["window_start"]}
    load_document(document)


@pytest.mark.parametrize(
    ("text", "size"), [("128 MB", 128 << 20), ("64kb", 64 << 10), ("1 GB", 1 << 30), ("70000", 70_000)]
)
def test_sizes_have_units_of_memory(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("kind", ["delta", "iceberg", "lakehouse"])
def test_other_names_of_tables_are_understood(kind: str) -> None:
    with pytest.raises(InvalidSpec, match="did you mean 'table'"):
        load_document({**spec({}), "sink": {"type": kind, "path": "x"}})
