"""Spark data source `barnabas`: makes readers and writers from options.

The driver checks the options here, before any task runs. Spark starts a process for each question, so each
method imports only the modules that its answer needs.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_barnabas.shared import options as parse
from pyspark_barnabas.shared.columns import spark_schema
from pyspark_barnabas.shared.options import OptionError, Options


class BarnabasDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> str:
        return spark_schema(parse.columns(Options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        options = Options(self.options)
        if _engine(options) == "segments":
            from pyspark_barnabas.readers.segments import SegmentReader  # noqa: PLC0415

            return SegmentReader(options)
        from pyspark_barnabas.readers.batch_reader import BatchReader  # noqa: PLC0415

        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's name
        options = Options(self.options)
        if _engine(options) == "segments":
            from pyspark_barnabas.readers.segment_stream import SegmentStreamReader  # noqa: PLC0415

            return SegmentStreamReader(options)
        from pyspark_barnabas.readers.stream_reader import StreamReader  # noqa: PLC0415

        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use mode append")
        options = Options(self.options)
        if _is_exactly_once(options):
            from pyspark_barnabas.writers.sink import ExactlyOnceBatchWriter  # noqa: PLC0415

            return ExactlyOnceBatchWriter(options, schema)
        from pyspark_barnabas.writers.writer import BatchWriter  # noqa: PLC0415

        return BatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if overwrite:
            raise OptionError("a topic is append-only: use output mode append, or update with foreachBatch")
        options = Options(self.options)
        if _is_exactly_once(options):
            from pyspark_barnabas.writers.sink import ExactlyOnceStreamWriter  # noqa: PLC0415

            return ExactlyOnceStreamWriter(options, schema)
        from pyspark_barnabas.writers.writer import StreamWriter  # noqa: PLC0415

        return StreamWriter(options, schema)


def _engine(options: Options) -> str:
    engine = (options.get("engine") or "python").lower()
    if engine == "jvm":
        raise OptionError(
            'engine=jvm is format("kafka"): use pyspark_barnabas.read(spark, engine="jvm", ...)'
        )
    if engine not in {"auto", "python", "segments"}:
        raise OptionError(f"engine is auto, python, jvm or segments, not {engine!r}")
    return engine


def _is_exactly_once(options: Options) -> bool:
    delivery = (options.get("delivery") or "at-least-once").lower()
    if delivery not in {"at-least-once", "exactly-once"}:
        raise OptionError(f"delivery is at-least-once or exactly-once, not {delivery!r}")
    return delivery == "exactly-once"
