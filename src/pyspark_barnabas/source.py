"""What Spark sees: one data source that makes readers and writers out of options.

Options are checked here, on the driver, before anything runs.
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

from pyspark_barnabas import options as parse
from pyspark_barnabas.options import OptionError, Options
from pyspark_barnabas.reader import BatchReader
from pyspark_barnabas.schema import spark_schema
from pyspark_barnabas.segment_stream import SegmentStreamReader
from pyspark_barnabas.segments import SegmentReader
from pyspark_barnabas.sink import ExactlyOnceBatchWriter, ExactlyOnceStreamWriter
from pyspark_barnabas.stream_reader import StreamReader
from pyspark_barnabas.writer import BatchWriter, StreamWriter


class BarnabasDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> str:
        return spark_schema(parse.columns(Options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        options = Options(self.options)
        return SegmentReader(options) if _engine(options) == "segments" else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's name
        options = Options(self.options)
        return SegmentStreamReader(options) if _engine(options) == "segments" else StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use mode append")
        options = Options(self.options)
        return (ExactlyOnceBatchWriter if _is_exactly_once(options) else BatchWriter)(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if overwrite:
            raise OptionError("a topic is append-only: use output mode append, or update with foreachBatch")
        options = Options(self.options)
        return (ExactlyOnceStreamWriter if _is_exactly_once(options) else StreamWriter)(options, schema)


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
