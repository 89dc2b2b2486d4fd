"""Choice of the reading engine: `auto`, `python`, `jvm` or `segments`.

- `python` is `format("barnabas")`.
- `jvm` is Spark's own Kafka connector, where its classes are on the class path. Its package has the version
  of the running PySpark.
- `segments` reads closed segment files.
- `auto` takes the JVM connector where it is available and the query uses no option that only `python` has.
"""

from __future__ import annotations

from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame, SparkSession

from pyspark_barnabas.shared.options import OptionError
from pyspark_barnabas.writers.repartition import connector_options

ENGINES: Final = ("auto", "python", "jvm", "segments")
PYTHON_ONLY: Final = frozenset({"columns", "manifest", "offsetsAtRead"})
_JVM_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def jvm_package() -> str:
    """Maven coordinates of Spark's Kafka connector, for `spark.jars.packages`."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def has_jvm_connector(spark: SparkSession) -> bool:
    jvm: Any = spark.sparkContext._jvm
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(_JVM_PROVIDER, False, loader)
    except Exception:  # noqa: BLE001 - py4j raises its own types for ClassNotFoundException
        return False
    return True


def choose(spark: SparkSession, engine: str, options: dict[str, str]) -> str:
    if engine not in ENGINES:
        raise OptionError(f"engine is one of {', '.join(ENGINES)}, not {engine!r}")
    if engine == "jvm" and not has_jvm_connector(spark):
        raise OptionError(f"engine=jvm needs Spark's Kafka connector: spark.jars.packages={jvm_package()}")
    if engine == "auto":
        is_plain = not PYTHON_ONLY & set(options)
        return "jvm" if is_plain and has_jvm_connector(spark) else "python"
    return engine


def read(spark: SparkSession, *, engine: str = "auto", **options: Any) -> DataFrame:
    """Batch of the records of a topic."""
    return _loaded(spark, spark.read, engine, options)


def read_stream(spark: SparkSession, *, engine: str = "auto", **options: Any) -> DataFrame:
    """Stream of the records of a topic."""
    return _loaded(spark, spark.readStream, engine, options)


def read_segments(
    spark: SparkSession, path: str, *, topics: list[str] | None = None, **options: Any
) -> DataFrame:
    """Closed segments of the manifest at `path`: a manifest file, or a log directory that holds one."""
    given = {"subscribe": ",".join(topics)} if topics else {}
    if not topics and not {"subscribe", "subscribePattern", "assign"} & set(options):
        given = {"subscribePattern": ".*"}
    return read(spark, engine="segments", manifest=path, **given, **options)


def _loaded(spark: SparkSession, reader: Any, engine: str, given: dict[str, Any]) -> DataFrame:
    options = connector_options(given)
    chosen = choose(spark, engine, options)
    if chosen == "jvm":
        loading = reader.format("kafka").options(**options)
    else:
        loading = reader.format("barnabas").options(**options, engine=chosen)
    loaded: DataFrame = loading.load()
    return loaded
