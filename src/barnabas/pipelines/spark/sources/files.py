"""File source: each file that appears in a directory is read once, by Spark's log of the source.

Spark forgets files that are a week older than the newest one. It skips files that appear later with an old
modification time, as after `rsync -t` and `cp -p`. Here files of any age are read.

A row is bad if any column of the schema cannot be read from it. Spark parses only the columns that a query
needs, finds faults only in those, and refuses a query that needs nothing but the faulty text. So the column
with the faulty text depends on every column here (`_judged`): good rows and dead letters see the same faults.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import StringType, StructField, StructType

from barnabas.pipelines.spark.columns.columns import quoted
from barnabas.pipelines.spark.context.run_context import Rows, Run
from barnabas.pipelines.spark.formats.decoding import counted, struct_of
from barnabas.pipelines.spark.formats.text import CORRUPT
from barnabas.pipelines.spark.sources.watermark import with_watermark
from barnabas.pipelines.spec.model import Part, Tolerance

ANY_AGE = "36500d"


def read(part: Part, run: Run, *, streaming: bool) -> Rows:
    reader: Any = run.spark.readStream if streaming else run.spark.read
    kind = part["format"]
    permissive = kind in ("json", "csv")
    options = {"columnNameOfCorruptRecord": CORRUPT, "mode": "PERMISSIVE"} if permissive else {}
    if streaming:
        options["maxFileAge"] = ANY_AGE
    if streaming and part.get("max_files_per_trigger"):
        options["maxFilesPerTrigger"] = str(part["max_files_per_trigger"])
    reader = reader.format(kind).options(**{**options, **part.get("format_options", {})})
    schema = struct_of(part["schema"]) if part.get("schema") else None
    if schema is not None:
        extra = [StructField(CORRUPT, StringType())] if permissive else []
        reader = reader.schema(StructType([*schema.fields, *extra]))
    rows = reader.load(run.resolved(part, "path"))
    if not permissive:
        return Rows(with_watermark(rows, part))
    rows = _judged(rows)
    bad = F.col(CORRUPT).isNotNull()
    observed = counted(rows, CORRUPT, run)
    message = F.concat(F.lit(f"a row that is not {kind} of the schema: "), F.substring(CORRUPT, 1, 200))
    fine = ~bad
    if run.spec.errors.tolerance is Tolerance.NONE:
        fine = F.when(~bad, F.lit(True)).otherwise(F.raise_error(message).cast("boolean"))
    good = with_watermark(observed.where(fine).drop(CORRUPT), part)
    letters = rows.where(bad).select(F.col(CORRUPT).alias("value"), message.alias("error"))
    return Rows(good, letters if run.spec.errors.dead_letter_topic else None)


def _judged(rows: DataFrame) -> DataFrame:
    """`rows`, with a faulty text that Spark cannot find without parsing every column."""
    others = [name for name in rows.columns if name != CORRUPT]
    is_parsed = F.size(F.array(*(quoted(name).isNull() for name in others))) == len(others)
    return rows.withColumn(CORRUPT, F.when(is_parsed, F.col(CORRUPT)))
