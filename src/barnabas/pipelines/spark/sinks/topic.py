"""Topic sink: good rows and dead letters are one output, so that one transaction holds both."""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.formats.encoding import encode
from barnabas.pipelines.spark.sinks.built_sink import BuiltSink
from barnabas.pipelines.spark.sinks.records import Records, stream_records
from barnabas.pipelines.spec.model import Part


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> BuiltSink:
    outputs = [Records(encode(rows, part, run), part.get("topic"))]
    if letters is not None:
        outputs.append(Records(letters, run.spec.errors.dead_letter_topic))
    return BuiltSink(stream_records(outputs, part, run), took_letters=True)
