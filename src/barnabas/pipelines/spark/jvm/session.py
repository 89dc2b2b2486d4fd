"""Spark session of a driver process.

Defaults suit a laptop: all cores, few shuffle partitions (Spark's 200 cost a second per micro-batch), no web
interface, UTC. A spec's `spark` section overrides all of them. On a cluster the local defaults do not apply.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any

from barnabas.core.optional_dependencies import install_command
from barnabas.pipelines.spark.jvm.banners import without_banners
from barnabas.pipelines.spark.jvm.class_sharing import sharing_options
from barnabas.pipelines.spark.jvm.spark_home import unzipped_home
from barnabas.pipelines.spark.jvm.stall_watchdog import WORKER_SILENCE_S_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
LOOPBACK = "127.0.0.1"
HIDDEN_NAMES = "(?i)secret|password|passwd|token|access[.]?key|credential|jaas|keystore[.]key"
"""Names of settings and options whose values Spark hides. Spark's own pattern lacks some of Kafka's. The
engine `jvm` receives resolved secrets, because Java's client resolves no references."""
STOP_S_MAX = 120
"""Time for an interrupted query to stop."""
FEW_RECOMPILATIONS = (
    "-XX:+ExitOnOutOfMemoryError -XX:+UseSerialGC"
    " -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""JVM options for a short start and bounded memory.

A new JVM compiles code a second time, for speed, after some thousand runs. Until the first micro-batch that
takes two fifths of its CPU, nearly all of it wasted. With ten times higher thresholds, only code that a
pipeline runs all day is compiled again. One thread collects a heap of a gigabyte well enough. A JVM out of
memory exits: its pipelines would otherwise fail one after another and count failures that are not theirs.
"""
ADAPTIVE_STATELESS_PLANNING = "spark.sql.adaptive.streaming.stateless.enabled"
QUIET = Path(__file__).with_name("log4j2.properties")


class SparkMissing(Exception):
    """This installation has no Spark; the message names what to install."""


def open_session(master: str | None, conf: Mapping[str, str], *, name: str) -> SparkSession:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - a plain install lacks it, and the import is expensive
    except ImportError:
        raise SparkMissing(
            f"running pipelines needs Spark: {install_command('spark')}, and Java 17"
        ) from None
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise SparkMissing("Spark needs Java 17: there is no java on the PATH, and JAVA_HOME is not set")
    quiet_loggers()
    quiet_accumulators()
    settings = {**session_defaults(master), **conf}
    _prepare_environment(settings)
    settings.setdefault("spark.driver.extraJavaOptions", java_options(settings))
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings(), without_banners():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel(conf.get("spark.log.level", "FATAL"))
    return session


def quiet_loggers() -> None:
    """Silence loggers of PySpark and Py4J, which log every error before they raise it.

    The code that catches the error reports it in one sentence.
    """
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - as above

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)  # which logs some errors as the root


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def quiet_accumulators() -> None:
    """Print no traceback when the JVM ends and closes its connection to the accumulators of this process.

    The caller of the JVM gets an exception, and reports the end.
    """
    from pyspark import accumulators  # noqa: PLC0415 - as above

    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _handle_error  # type: ignore[method-assign, assignment]


def _handle_error(server: BaseServer, request: Any, client_address: Any) -> None:
    if not isinstance(sys.exception(), (EOFError, ConnectionError)):
        BaseServer.handle_error(server, request, client_address)


def discard_stderr(spark: SparkSession) -> None:
    """Discard the output of the JVM and its Python workers from now on, because the driver stops them.

    The JVM copies the standard error of its workers to its own. A worker may print a traceback when the JVM
    closes its connection, and which worker does so depends on the moment. Failures of a stop reach the driver
    as exceptions. Java redirects a standard stream that is closed to /dev/null.
    """
    jvm: Any = spark._jvm
    jvm.java.lang.System.err.close()


def _prepare_environment(settings: Mapping[str, str]) -> None:
    """Environment variables that Spark needs when a Python process starts it.

    Only `spark-submit` honours `spark.pyspark.python`. Without the variable, workers would run the `python3`
    of the PATH. In a virtual environment that is not activated, that one lacks all packages.
    """
    if "spark.pyspark.python" in settings:
        os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        use_unzipped_home()
        # Otherwise Spark looks up the machine's name, and warns if it is a loopback address.
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def session_defaults(master: str | None) -> dict[str, str]:
    chosen = master or os.environ.get("SPARK_MASTER") or LOCAL
    defaults = {
        "spark.master": chosen,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.python.filterPushdown.enabled": "false",
        "spark.python.worker.idleTimeoutSeconds": str(WORKER_SILENCE_S_MAX),
        "spark.python.worker.killOnIdleTimeout": "true",
        "spark.sql.streaming.stopTimeout": f"{STOP_S_MAX}s",
        "spark.redaction.regex": HIDDEN_NAMES,
        "spark.sql.redaction.options.regex": f"{HIDDEN_NAMES}|url",
    }
    if chosen.startswith("local"):
        defaults |= {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
        }
    if is_one_process(chosen):
        # In one process the package is installed. Executors of a cluster may get it only with their first
        # task.
        defaults["spark.python.daemon.module"] = "pyspark_barnabas.worker.daemon"
    return defaults


def is_one_process(master: str) -> bool:
    """True if the driver process is also the executor."""
    return master == "local" or master.startswith("local[")


def disable_adaptive_stateless_planning(spark: SparkSession) -> None:
    """Make the queries of this session plan micro-batches from one thread.

    Spark talks to the Python process that plans a stream's micro-batches over one connection. Nothing keeps
    two of its threads from asking at once, and each then reads parts of the other's answer. The query fails
    ("prefetchArrowBatches: unknown status code 267", a partition's length taken for a status) or hangs.

    Two threads ask where one stream feeds two shuffles of a micro-batch and Spark plans adaptively: it then
    prepares each shuffle in a separate thread. The good rows and dead letters of an exactly-once topic are
    such shuffles. Without adaptive planning the query's thread asks for both in turn. Spark plans stateless
    streams adaptively only since 4.1, and it helps little here: the number of partitions is fixed beforehand.
    """
    spark.conf.set(ADAPTIVE_STATELESS_PLANNING, "false")


def use_unzipped_home() -> None:
    """Set SPARK_HOME to the unzipped home, unless it is set already."""
    if "SPARK_HOME" not in os.environ and (home := unzipped_home()) is not None:
        os.environ["SPARK_HOME"] = str(home)


def java_options(settings: Mapping[str, str]) -> str:
    """JVM options of a local driver: quiet, and started from the class archive."""
    if not settings["spark.master"].startswith("local"):
        return ""
    import pyspark  # noqa: PLC0415 - as above

    quiet = f"-Dlog4j2.configurationFile={QUIET.as_uri()}"
    return f"{quiet} {FEW_RECOMPILATIONS} {sharing_options(settings, pyspark.__version__)}".strip()
