"""Records for topics: rows of key, value, topic and headers, written exactly once or at least once.

With exactly-once delivery the connector writes a micro-batch in one transaction, and each output partition
must have one writing task. Rows of a topic that is known beforehand are repartitioned by their partition.
Rows whose topic is in a column are written by one task. Good rows and dead letters go to different topics, so
one output holds both partitionings side by side.

With at-least-once delivery, tasks write rows as they come, with idempotent producers. A repeated micro-batch
is written again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType, StringType, StructType

from barnabas.pipelines.spark.context.connector import client_options, own_options
from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.context.topics import ensure_topics
from barnabas.pipelines.spec.model import Delivery, Part
from pyspark_barnabas import exactly_once
from pyspark_barnabas.shared.options import Options
from pyspark_barnabas.writers.batch_names import QUERY_ID
from pyspark_barnabas.writers.sink import ExactlyOnceBatchWriter

UPDATE = "update"
MARKER_TOPIC = "__barnabas_pipeline_batches"


class Records(NamedTuple):
    rows: DataFrame
    topic: str | None
    """Topic of all rows; None where the column `topic` holds it."""


def stream_records(outputs: list[Records], part: Part, run: Run) -> DataStreamWriter:
    """One query for all `outputs`. With exactly-once delivery, each micro-batch is one transaction."""
    options = sink_options(part, run)
    union, chosen = _joined(outputs, options, run, run.spec.group_id)
    if run.spec.output_mode == UPDATE:
        return union.writeStream.foreachBatch(_batch_writer(chosen, run))
    return union.writeStream.format("barnabas").options(**chosen)


def sink_options(part: Part, run: Run) -> dict[str, str]:
    """Connector options of a topic sink."""
    options = {"kafka.bootstrap.servers": run.bootstrap_of(part), **client_options(part)}
    if part.get("compression"):
        options["compression"] = part["compression"]
    return options


def stream_letters(letters: DataFrame, run: Run) -> DataStreamWriter:
    """Query for dead letters of a pipeline whose sink is not a topic, with its own progress."""
    outputs = [Records(letters, run.spec.errors.dead_letter_topic)]
    options = own_options(run)
    union, chosen = _joined(outputs, options, run, letters_group(run))
    return union.writeStream.format("barnabas").options(**chosen)


def write_letters(letters: DataFrame, run: Run, query_id: str) -> None:
    """Write dead letters that no query will see, at once. `query_id` identifies exactly these letters."""
    outputs = [Records(letters, run.spec.errors.dead_letter_topic)]
    options = own_options(run)
    union, chosen = _joined(outputs, options, run, f"{run.spec.group_id}-quarantine")
    if run.spec.delivery is Delivery.EXACTLY_ONCE:
        chosen |= {"queryId": query_id, "batchId": "0"}
    union.write.format("barnabas").mode("append").options(**chosen).save()


def written_topic(run: Run) -> ExactlyOnceBatchWriter:
    """Topic sink of an exactly-once pipeline, which knows the batches that it holds."""
    return _written(sink_options(run.spec.sink, run), run, run.spec.group_id)


def written_letters(run: Run) -> ExactlyOnceBatchWriter:
    """Sink of `stream_letters`."""
    return _written(own_options(run), run, letters_group(run))


def letters_group(run: Run) -> str:
    return f"{run.spec.group_id}-dead-letters"


def _written(options: dict[str, str], run: Run, pipeline_id: str) -> ExactlyOnceBatchWriter:
    named = {"pipelineId": pipeline_id, **marker_topic(options, run)}
    schema = StructType().add("value", BinaryType()).add("topic", StringType())
    return ExactlyOnceBatchWriter(Options({**options, **named}), schema)


def _batch_writer(options: dict[str, str], run: Run) -> Callable[[DataFrame, int], None]:
    """Writer for `foreachBatch`: Spark allows updated rows in a Python sink only as separate batches."""
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
    """All outputs as one DataFrame, and the connector's options for it."""
    ensure_topics(options, [each.topic for each in outputs if each.topic is not None])
    frames = [each.rows for each in outputs]
    extra: dict[str, str] = {"includeHeaders": "true"}
    if run.spec.delivery is Delivery.EXACTLY_ONCE:
        frames = [_repartitioned(each, options) for each in outputs]
        extra |= {"delivery": "exactly-once", "pipelineId": pipeline_id, **marker_topic(options, run)}
    union = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    return union, {**options, **extra}


def marker_topic(options: dict[str, str], run: Run) -> dict[str, str]:
    """Marker topic option: on the pipeline's own cluster, batch names outlive the group's offsets."""
    is_elsewhere = options["kafka.bootstrap.servers"] != run.bootstrap
    if is_elsewhere or options.get("kafka.security.protocol", "PLAINTEXT") != "PLAINTEXT":
        return {}
    ensure_topics(options, [MARKER_TOPIC], {"cleanup.policy": "compact"}, partitions=1)
    return {"markerTopic": MARKER_TOPIC}


def _repartitioned(records: Records, options: dict[str, str]) -> DataFrame:
    if records.topic is None:
        return records.rows.repartition(1)
    return exactly_once(records.rows, topic=records.topic, **options)
