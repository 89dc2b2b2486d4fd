"""One switch for who reads: `auto`, `python`, `jvm` or `segments`.

`python` is `format("barnabas")`. `jvm` is Spark's own Kafka connector, if its classes are there; the
package that fits has the version of the PySpark that runs. `segments` reads files. `auto` takes the
JVM connector when it is there and the query uses nothing that only the other has, else `python`.
"""

from __future__ import annotations

from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame, SparkSession

from pyspark_barnabas.arrange import connector_options
from pyspark_barnabas.options import OptionError

ENGINES: Final = ("auto", "python", "jvm", "segments")
PYTHON_ONLY: Final = frozenset({"columns", "manifest"})
_JVM_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def jvm_package() -> str:
    """For `spark.jars.packages`."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def has_jvm_connector(spark: SparkSession) -> bool:
    jvm: Any = spark.sparkContext._jvm
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(_JVM_PROVIDER, False, loader)
    except Exception:  # noqa: BLE001 - whatever py4j makes of ClassNotFoundException
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
    """A batch of a topic's records."""
    return _loaded(spark, spark.read, engine, options)


def read_stream(spark: SparkSession, *, engine: str = "auto", **options: Any) -> DataFrame:
    """A stream of a topic's records."""
    return _loaded(spark, spark.readStream, engine, options)


def read_segments(
    spark: SparkSession, path: str, *, topics: list[str] | None = None, **options: Any
) -> DataFrame:
    """Closed segments of the manifest at `path` (a file, or a log directory that has one)."""
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
