from __future__ import annotations

import ast
from typing import Any

import pytest
import yaml

from barnabas.pipelines.spec.declarative.export import CannotExport, Exported, export
from barnabas.pipelines.spec.declarative.select import Select, simple_select
from barnabas.pipelines.spec.validation import load_document

SOURCE = {"type": "topic", "topics": ["orders"], "schema": "id BIGINT, name STRING"}
FILES = {"type": "files", "path": "lake/orders"}
TOPIC = {"type": "topic", "topic": "out", "key": ["id"]}


def exported(**more: Any) -> Exported:
    spec = load_document({"name": "clean-orders", "source": SOURCE, "sink": FILES, **more})
    return export(spec, "b:9092", "file:///state")


def refused(**more: Any) -> list[str]:
    with pytest.raises(CannotExport) as found:
        exported(**more)
    return found.value.reasons


def test_a_pipeline_into_files_becomes_a_table() -> None:
    found = exported(
        transforms=[{"filter": "id > 1"}, {"sql": "SELECT id, upper(name) AS name FROM input WHERE id < 9"}],
        trigger="30 seconds",
        restart={"max_attempts": 2},
        spark={"conf": {"spark.sql.shuffle.partitions": "2"}},
    )
    ast.parse(found.python)
    for line in (
        '@dp.table(name="clean_orders", format="parquet")',
        '        .option("subscribe", "orders")',
        '        .option("kafka.bootstrap.servers", "b:9092")',
        '    rows = rows.where("id > 1")',
        '        "upper(name) AS name",',
        '# The YAML pipeline writes "lake/orders". This table is in Spark\'s warehouse,',
    ):
        assert line in found.python.splitlines()
    project = yaml.safe_load(found.project)
    assert project["name"] == "clean-orders"
    assert project["storage"] == "file:///state"
    assert project["libraries"] == [{"glob": {"include": "transformations/**"}}]
    configuration = project["configuration"]
    assert configuration["spark.sql.shuffle.partitions"] == "2"
    assert configuration["spark.barnabas.update.min.interval"] == "30000 ms"
    assert configuration["spark.barnabas.restart.max_attempts"] == "2"


def test_a_pipeline_into_a_topic_becomes_a_sink() -> None:
    found = exported(sink=TOPIC, delivery="at-least-once")
    ast.parse(found.python)
    assert '@dp.append_flow(target="clean_orders_topic", name="clean_orders")' in found.python
    assert 'F.col("id").cast("string").cast("binary").alias("key")' in found.python
    assert "deleted" in found.python


def test_a_users_function_and_duplicates_are_exported() -> None:
    transforms = [
        {"python": "shop.clean:tidy"},
        {"type": "deduplicate", "keys": ["id"], "time": "_timestamp", "watermark": "1 hour"},
    ]
    found = exported(transforms=transforms)
    ast.parse(found.python)
    assert "import shop.clean" in found.python
    assert "    rows = shop.clean.tidy(rows)" in found.python
    assert 'rows.withWatermark("_timestamp", "3600000 milliseconds")' in found.python
    assert 'rows.dropDuplicatesWithinWatermark(["id"])' in found.python


def test_texts_of_a_spec_stay_texts() -> None:
    found = exported(
        transforms=[{"filter": "name = '\"\\n\" + exit()'"}], sink={**FILES, "path": "lake\nexit()"}
    )
    ast.parse(found.python)
    calls = (node.func for node in ast.walk(ast.parse(found.python)) if isinstance(node, ast.Call))
    assert "exit" not in {each.id for each in calls if isinstance(each, ast.Name)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sink": TOPIC}, "sink topic with delivery exactly-once"),
        ({"sink": {"type": "table", "path": "lake/orders"}}, "sink table"),
        ({"errors": {"tolerance": "all", "dead_letter_topic": "bad"}}, "errors.dead_letter_topic"),
        ({"errors": {"tolerance": "all"}}, "errors.tolerance all"),
        ({"source": {**SOURCE, "schema": None}}, "source.schema is inferred"),
        ({"source": {**SOURCE, "envelope": "connect"}}, "source.envelope connect"),
        ({"source": {"type": "rate"}}, "source rate"),
        ({"transforms": [{"Flatten": "_"}]}, "transforms.0: the transform Flatten"),
        ({"transforms": [{"sql": "SELECT DISTINCT id FROM input"}]}, "transforms.0: the query is more"),
        (
            {"transforms": [{"type": "python", "function": "a:b", "arguments": {"x=exit(),y": "1"}}]},
            "transforms.0: the argument 'x=exit(),y' is not a name",
        ),
        ({"engine": "jvm"}, "engine jvm"),
        ({"sink": {**FILES, "format_options": {"x": "1"}}}, "sink.format_options"),
    ],
)
def test_what_the_declarative_form_cannot_say_is_refused_by_name(
    changes: dict[str, Any], reason: str
) -> None:
    assert any(each.startswith(reason) for each in refused(**changes))


@pytest.mark.parametrize(
    ("query", "select"),
    [
        ("SELECT * FROM input", Select(("*",), None)),
        (
            "select struct(a, b) AS c, coalesce(d, 'x, y') FROM input\nWHERE a IN (1, 2)",
            Select(("struct(a, b) AS c", "coalesce(d, 'x, y')"), "a IN (1, 2)"),
        ),
        ("SELECT a FROM input i", None),
        ("SELECT a FROM other", None),
        ("SELECT a FROM input, other", None),
        ("SELECT a FROM input LIMIT 1", None),
        ("SELECT count(*) FROM input GROUP BY a", None),
        ("SELECT a FROM input WHERE a IN (SELECT b FROM input)", None),
        ("SELECT 1", None),
        ("SELECT 'open FROM input", None),
    ],
)
def test_only_columns_and_a_condition_are_a_simple_query(query: str, select: Select | None) -> None:
    assert simple_select(query) == select
