"""The Spark session of a driver process.

Defaults are for a laptop: all cores, few shuffle partitions (Spark's 200 cost a second each
micro-batch), no web interface, times in UTC. A spec's `spark` section overrides every one of
them, and on a cluster only what is said there counts.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.core.extras import install_command
from barnabas.pipelines.spark.class_sharing import sharing_options
from barnabas.pipelines.spark.silence import WORKER_SILENCE_S_MAX
from barnabas.pipelines.spark.spark_home import unzipped_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
LOOPBACK = "127.0.0.1"
HIDDEN_NAMES = "(?i)secret|password|passwd|token|access[.]?key|credential|jaas|keystore[.]key"
"""Of settings and options whose values Spark does not show. Its own pattern lacks some of Kafka's; the engine
`jvm` is given what references stand for, as Java's client follows none."""
STOP_S_MAX = 120
"""How long a query that is told to stop may take, interrupted."""
FEW_RECOMPILATIONS = (
    "-XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""A JVM that begins compiles its code a second time, for speed, when it has run some thousand times: on the
way to the first micro-batch that is two fifths of its CPU, nearly all of it in vain. Ten times that often, it
is code that a pipeline runs all day. One thread collects the garbage of a heap of a gigabyte well enough."""
QUIET = Path(__file__).with_name("log4j2.properties")


class SparkMissing(Exception):
    """This installation has no Spark; the message says what to install."""


def open_session(master: str | None, conf: Mapping[str, str], *, name: str) -> SparkSession:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - a plain install has none, and it is heavy
    except ImportError:
        raise SparkMissing(
            f"running pipelines needs Spark: {install_command('spark')}, and Java 17"
        ) from None
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise SparkMissing("Spark needs Java 17: there is no java on the PATH, and JAVA_HOME is not set")
    quiet_loggers()
    settings = {**session_defaults(master), **conf}
    _prepare_environment(settings)
    settings.setdefault("spark.driver.extraJavaOptions", java_options(settings))
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel(conf.get("spark.log.level", "FATAL"))
    return session


def quiet_loggers() -> None:
    """Spark's Python logs every error of a query as JSON, and Py4J every broken call, before they are raised.

    Whoever catches them says it in one sentence.
    """
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - as above

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)


def _prepare_environment(settings: Mapping[str, str]) -> None:
    """What Spark takes from the environment alone when a Python process starts it.

    `spark.pyspark.python` is heeded by `spark-submit` only. Without the variable, workers would be
    whatever `python3` the PATH has, which in a virtual environment that is not activated lacks all
    packages.
    """
    if "spark.pyspark.python" in settings:
        os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        use_unzipped_home()
        # Otherwise Spark looks for the machine's name, and complains when it is a loopback address.
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
        # Where the package is: executors of a cluster may get it with their first task only.
        defaults["spark.python.daemon.module"] = "pyspark_barnabas.daemon"
    return defaults


def is_one_process(master: str) -> bool:
    """Whether executors are the driver itself."""
    return master == "local" or master.startswith("local[")


def use_unzipped_home() -> None:
    """Unless a Spark is named that is not the installed one."""
    if "SPARK_HOME" not in os.environ and (home := unzipped_home()) is not None:
        os.environ["SPARK_HOME"] = str(home)


def java_options(settings: Mapping[str, str]) -> str:
    """For a driver's JVM that lives here: quiet, and started from what earlier ones have left."""
    if not settings["spark.master"].startswith("local"):
        return ""
    import pyspark  # noqa: PLC0415 - as above

    quiet = f"-Dlog4j2.configurationFile={QUIET.as_uri()}"
    return f"{quiet} {FEW_RECOMPILATIONS} {sharing_options(settings, pyspark.__version__)}".strip()
