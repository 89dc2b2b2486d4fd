"""Into topics: good rows and dead letters are one output, so that one transaction holds both."""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.pipelines.formats.encoding import encode
from barnabas.pipelines.run import Run
from barnabas.pipelines.sinks.records import stream_records
from barnabas.pipelines.sinks.writing import Writing
from barnabas.pipelines.spec import Part


def write(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> Writing:
    records = encode(rows, part, run)
    if letters is not None:
        records = records.unionByName(letters)
    return Writing(stream_records(records, part, run), took_letters=True)
