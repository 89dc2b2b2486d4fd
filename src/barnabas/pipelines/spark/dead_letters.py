"""Dead letters: records that could not be read, or that broke a transform, on their way to their own topic.

The bytes, key and headers go as they came; headers of the names that Connect uses say where the
record stood and what was wrong with it. For a topic sink the letters are part of the same output
as the good rows, and so of the same transaction; other sinks have a second query for them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.run import Run
from barnabas.pipelines.spark.transforms.single_message import HEADERS

PREFIX = "__connect.errors."


def dead_letters(bad: DataFrame, run: Run) -> DataFrame:
    """The columns key, value, topic and headers, ready for a topic."""
    spec = run.spec
    context = {
        "topic": _of(bad, "topic"),
        "partition": _of(bad, "partition"),
        "offset": _of(bad, "offset"),
        "connector.name": F.lit(spec.name),
        "task.id": F.lit("0"),
        "stage": F.lit("VALUE_CONVERTER"),
        "class.name": F.lit(f"barnabas.pipelines.spark.formats.{spec.source.get('format', 'files')}"),
        "exception.class.name": F.lit("org.apache.kafka.connect.errors.DataException"),
        "exception.message": F.col("error"),
        "exception.stacktrace": F.col("error"),
    }
    added = F.array(
        *(
            F.struct(F.lit(PREFIX + name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in context.items()
        )
    ).cast(HEADERS)
    empty = F.array().cast(HEADERS)
    original = F.coalesce(F.col("headers").cast(HEADERS), empty) if "headers" in bad.columns else empty
    return bad.select(
        (F.col("key") if "key" in bad.columns else F.lit(None)).cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        F.lit(spec.errors.dead_letter_topic).alias("topic"),
        F.concat(original, added).alias("headers"),
    )


def _of(bad: DataFrame, name: str) -> Column:
    return F.col(name) if name in bad.columns else F.lit(None)
