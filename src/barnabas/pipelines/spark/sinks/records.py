"""Rows of key, value, topic and headers on their way into topics.

Exactly once, the connector makes one transaction of a micro-batch, for which each output
partition must have one writing task: rows of a topic that is known beforehand are arranged by
their partition, rows whose topic only they know are written by one task. Good rows and dead
letters go to different topics, so that both arrangements stand side by side in one output.
At least once, tasks write as they come, with idempotent producers, and a micro-batch that is
tried again is written again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from barnabas.pipelines.spark.connector import client_options, own_options
from barnabas.pipelines.spark.run import Run
from barnabas.pipelines.spark.topics import ensure_topics
from barnabas.pipelines.spec.model import Delivery, Part
from pyspark_barnabas import exactly_once
from pyspark_barnabas.batch_names import QUERY_ID

UPDATE = "update"
MARKER_TOPIC = "__barnabas_pipeline_batches"


class Records(NamedTuple):
    rows: DataFrame
    topic: str | None
    """Where all of them go; None where the column `topic` says."""


def stream_records(outputs: list[Records], part: Part, run: Run) -> DataStreamWriter:
    """One query for all `outputs`, and, exactly once, one transaction for each of its micro-batches."""
    options = {
        "kafka.bootstrap.servers": run.bootstrap_of(part),
        **client_options(part),
    }
    if part.get("compression"):
        options["compression"] = part["compression"]
    union, chosen = _joined(outputs, options, run, run.spec.group_id)
    if run.spec.output_mode == UPDATE:
        return union.writeStream.foreachBatch(_batch_writer(chosen, run))
    return union.writeStream.format("barnabas").options(**chosen)


def stream_letters(letters: DataFrame, run: Run) -> DataStreamWriter:
    """Dead letters of a pipeline whose sink is no topic: a query with its own progress."""
    outputs = [Records(letters, run.spec.errors.dead_letter_topic)]
    options = own_options(run)
    union, chosen = _joined(outputs, options, run, f"{run.spec.group_id}-dead-letters")
    return union.writeStream.format("barnabas").options(**chosen)


def write_letters(letters: DataFrame, run: Run, query_id: str, number: int) -> None:
    """Dead letters that no query will see, at once; `number` grows from one time to the next."""
    outputs = [Records(letters, run.spec.errors.dead_letter_topic)]
    options = own_options(run)
    union, chosen = _joined(outputs, options, run, f"{run.spec.group_id}-quarantine")
    if run.spec.delivery is Delivery.EXACTLY_ONCE:
        chosen |= {"queryId": query_id, "batchId": str(number)}
    union.write.format("barnabas").mode("append").options(**chosen).save()


def _batch_writer(options: dict[str, str], run: Run) -> Callable[[DataFrame, int], None]:
    """Spark lets no Python sink have rows that replace earlier ones; as a batch each, it does."""
    checkpoint = run.checkpoint("checkpoint")

    def write(batch: DataFrame, batch_id: int) -> None:
        chosen = dict(options)
        if run.spec.delivery is Delivery.EXACTLY_ONCE:
            query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
            chosen |= {"queryId": query_id, "batchId": str(batch_id), "checkpointLocation": checkpoint}
        batch.write.format("barnabas").mode("append").options(**chosen).save()

    return write


def _joined(
    outputs: list[Records], options: dict[str, str], run: Run, pipeline_id: str
) -> tuple[DataFrame, dict[str, str]]:
    """All outputs as one, and the connector's options for it."""
    ensure_topics(options, [each.topic for each in outputs if each.topic is not None])
    frames = [each.rows for each in outputs]
    extra: dict[str, str] = {"includeHeaders": "true"}
    if run.spec.delivery is Delivery.EXACTLY_ONCE:
        frames = [_arranged(each, options) for each in outputs]
        extra |= {"delivery": "exactly-once", "pipelineId": pipeline_id, **_marker_topic(options, run)}
    union = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    return union, {**options, **extra}


def _marker_topic(options: dict[str, str], run: Run) -> dict[str, str]:
    """On the pipelines' own cluster, batches are remembered longer than the group's offsets are."""
    is_elsewhere = options["kafka.bootstrap.servers"] != run.bootstrap
    if is_elsewhere or options.get("kafka.security.protocol", "PLAINTEXT") != "PLAINTEXT":
        return {}
    ensure_topics(options, [MARKER_TOPIC], {"cleanup.policy": "compact"})
    return {"markerTopic": MARKER_TOPIC}


def _arranged(records: Records, options: dict[str, str]) -> DataFrame:
    if records.topic is None:
        return records.rows.repartition(1)
    return exactly_once(records.rows, topic=records.topic, **options)
