"""Into topics: good rows and dead letters are one output, so that one transaction holds both.

Windows that are written again whenever they change (`emit: updates`) are the exception: Spark
lets Python sinks only add rows, so each micro-batch is written as a batch of its own, and dead
letters take a second query.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.pipelines.formats.encoding import encode
from barnabas.pipelines.run import Run
from barnabas.pipelines.sinks.records import Records, stream_records, stream_updates
from barnabas.pipelines.sinks.writing import Writing
from barnabas.pipelines.spec import Part


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> Writing:
    records = encode(rows, part, run)
    if run.spec.output_mode == "update":
        return Writing(stream_updates(records, part, run))
    outputs = [Records(records, part.get("topic"))]
    if letters is not None:
        outputs.append(Records(letters, run.spec.errors.dead_letter_topic))
    return Writing(stream_records(outputs, part, run), took_letters=True)
