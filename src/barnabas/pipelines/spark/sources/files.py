"""Files that appear in a directory: each is taken up once, by Spark's own log of the source."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import StringType, StructField, StructType

from barnabas.pipelines.spark.formats.decoding import CORRUPT, counted, struct_of
from barnabas.pipelines.spark.run import Rows, Run
from barnabas.pipelines.spark.sources.watermark import with_watermark
from barnabas.pipelines.spec.model import Part, Tolerance


def read(part: Part, run: Run, *, streaming: bool) -> Rows:
    reader: Any = run.spark.readStream if streaming else run.spark.read
    kind = part["format"]
    permissive = kind in ("json", "csv")
    options = {"columnNameOfCorruptRecord": CORRUPT, "mode": "PERMISSIVE"} if permissive else {}
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
    bad = F.col(CORRUPT).isNotNull()
    observed = counted(rows, CORRUPT, run)
    message = F.concat(F.lit(f"a row that is not {kind} of the schema: "), F.substring(CORRUPT, 1, 200))
    fine = ~bad
    if run.spec.errors.tolerance is Tolerance.NONE:
        fine = F.when(~bad, F.lit(True)).otherwise(F.raise_error(message).cast("boolean"))
    good = with_watermark(observed.where(fine).drop(CORRUPT), part)
    letters = rows.where(bad).select(F.col(CORRUPT).alias("value"), message.alias("error"))
    return Rows(good, letters if run.spec.errors.dead_letter_topic else None)
