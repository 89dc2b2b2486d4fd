"""Delta Lake and Iceberg tables, where their jars are on Spark's class path."""

from __future__ import annotations

from pyspark.sql import DataFrame

from barnabas.pipelines.connector import require_class
from barnabas.pipelines.run import Run
from barnabas.pipelines.sinks.writing import Writing
from barnabas.pipelines.spec import Part
from barnabas.pipelines.transforms.columns import payload, quoted

DELTA_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
ICEBERG_CLASS = "org.apache.iceberg.spark.SparkCatalog"


def write_delta(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> Writing:  # noqa: ARG001
    require_class(run.spark, DELTA_CLASS, "Delta Lake", "io.delta:delta-spark_2.13")
    return _table(rows, part, run, "delta")


def write_iceberg(rows: DataFrame, letters: DataFrame | None, part: Part, run: Run) -> Writing:  # noqa: ARG001
    require_class(run.spark, ICEBERG_CLASS, "Iceberg", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13")
    return _table(rows, part, run, "iceberg")


def _table(rows: DataFrame, part: Part, run: Run, kind: str) -> Writing:
    named = rows.select(*(quoted(name) for name in payload(rows)))
    writer = named.writeStream.format(kind).options(**part.get("format_options", {}))
    place = part.get("path") or part.get("table")
    writer = writer.option("path", str(place) if part.get("table") else run.resolved(part, "path"))
    by = part.get("partition_by", [])
    return Writing(writer.partitionBy(*by) if by else writer)
