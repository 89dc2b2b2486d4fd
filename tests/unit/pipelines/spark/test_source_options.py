"""Options of the connector that a pipeline's source and sink lead to."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.pipelines.spark.context.connector import source_options
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spec.validation import load_document

TOPIC = {"type": "topic", "topic": "copies"}
TABLE = {"type": "table", "path": "lake"}


def options_of(sink: dict[str, Any], **source: Any) -> dict[str, str]:
    spec = load_document(
        {
            "name": "p",
            "source": {"type": "topic", "topics": "orders", "schema": "id BIGINT", "manifest": "m", **source},
            "sink": sink,
            "engine": "segments",
            "trigger": "available_now",
        }
    )
    session: Any = None
    return source_options(spec.source, Run(session, spec, "127.0.0.1:9092", "state"))


@pytest.mark.parametrize("sink", [TOPIC, {**TABLE, "mode": "upsert", "key": ["id"]}])
def test_segments_keep_the_order_of_a_partition_where_the_sink_needs_it(sink: dict[str, Any]) -> None:
    options = options_of(sink, min_partitions=8)
    assert options["keepOrder"] == "true"
    assert "minPartitions" not in options


def test_a_web_service_gets_rows_in_order_unless_more_tasks_are_asked_for() -> None:
    sink = {"type": "http", "url": "http://127.0.0.1:1"}
    assert options_of(sink)["keepOrder"] == "true"
    assert "keepOrder" not in options_of(sink, min_partitions=8)


def test_segments_into_other_sinks_are_read_by_as_many_tasks_as_are_asked_for() -> None:
    options = options_of(TABLE, min_partitions=8)
    assert "keepOrder" not in options
    assert options["minPartitions"] == "8"
