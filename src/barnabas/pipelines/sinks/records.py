"""Rows of key, value, topic and headers on their way into topics.

Exactly once, the connector makes one transaction of a micro-batch; at least once, it writes
with an idempotent producer, and a micro-batch that is tried again is written again.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from barnabas.pipelines.connector import client_options
from barnabas.pipelines.run import Run
from barnabas.pipelines.spec import Delivery, Part


def stream_records(records: DataFrame, part: Part, run: Run) -> DataStreamWriter:
    options = {
        "kafka.bootstrap.servers": run.bootstrap_of(part),
        "includeHeaders": "true",
        **client_options(run.resolved(part, "kafka") or {}),
    }
    if part.get("compression"):
        options["compression"] = part["compression"]
    return _write(records, options, run, run.spec.group_id)


def stream_letters(letters: DataFrame, run: Run) -> DataStreamWriter:
    """Dead letters of a pipeline whose sink is no topic: a query with its own progress."""
    options = {"kafka.bootstrap.servers": run.bootstrap, "includeHeaders": "true"}
    return _write(letters, options, run, f"{run.spec.group_id}-dead-letters")


def _write(records: DataFrame, options: dict[str, str], run: Run, pipeline_id: str) -> DataStreamWriter:
    if run.spec.delivery is Delivery.EXACTLY_ONCE:
        options |= {"delivery": "exactly-once", "pipelineId": pipeline_id}
    return records.writeStream.format("barnabas").options(**options)
