"""Trials of rows on a sink, without any effect there.

A micro-batch may fail because the sink refuses a few of its rows. A topic refuses records larger than its
`max.message.bytes`. A table refuses values that its types, constraints or triggers forbid. The error of a
trial is the reason in the dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.context.topics import MESSAGE_BYTES_MAX, message_bytes_max
from barnabas.pipelines.spark.databases import mysql, postgres, sqlite
from barnabas.pipelines.spark.databases.database import RowRefused
from barnabas.pipelines.spark.formats.encoding import encode
from barnabas.pipelines.spark.sinks import jdbc
from barnabas.pipelines.spark.sinks.records import sink_options
from barnabas.pipelines.spark.sinks.table import sink as table
from barnabas.pipelines.spec.model import Part
from barnabas.records.batch import HEADER_BYTES
from barnabas.records.compression import Codec, compress
from pyspark_barnabas.produce import encode as records
from pyspark_barnabas.shared.options import Options, compression


def try_sink(rows: DataFrame, part: Part, run: Run) -> None:
    """Raises the sink's error about `rows`."""
    _TRIALS.get(part.type, _compute)(rows, part, run)


def is_refusal(error: BaseException) -> bool:
    """True if a sink's error blames the rows, not the server."""
    is_databases = any(dialect.blames_row(error) for dialect in (postgres, mysql, sqlite))
    return is_databases or isinstance(error, RowRefused)


def _compute(rows: DataFrame, part: Part, run: Run) -> None:  # noqa: ARG001 - the signature of a trial
    rows.write.format("noop").mode("overwrite").save()


def _try_topic(rows: DataFrame, part: Part, run: Run) -> None:
    encoded = encode(rows, part, run)
    options = sink_options(part, run)
    name = part.get("topic")
    limits = {} if name is None else message_bytes_max(options, [name])
    bytes_max = min(limits.values(), default=MESSAGE_BYTES_MAX)
    check = _size_check(bytes_max, compression(Options(options)))
    large = F.coalesce(F.length("value"), F.lit(0)) + F.coalesce(F.length("key"), F.lit(0)) > bytes_max // 2
    suspects = encoded.where(large | (F.coalesce(F.size("headers"), F.lit(0)) > 0))
    _compute(encoded, part, run)
    suspects.mapInArrow(check, suspects.schema).write.format("noop").mode("overwrite").save()


def _size_check(
    bytes_max: int, codec: Codec
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Size check of records one by one: each is its own batch, which the topic accepts or refuses."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in range(batch.num_rows):
                one = batch.take(pa.array([at]))
                row = records.Rows(one.column("key"), one.column("value"), one.column("headers"))
                (payload,) = records.payloads(row, np.zeros(1, np.int64))
                held = compress(codec, payload.records) if codec else payload.records
                size = HEADER_BYTES + len(held)
                if size > bytes_max:
                    topic = one.column("topic")[0].as_py()
                    raise ValueError(
                        f"a record of {size} bytes is larger than max.message.bytes of {topic}, {bytes_max}"
                    )
            yield batch.slice(0, 0)

    return check


_TRIALS: Mapping[str, Callable[[DataFrame, Part, Run], None]] = {
    "topic": _try_topic,
    "jdbc": jdbc.try_out,
    "table": table.try_out,
}
