"""One small Spark for a whole test run.

A session costs some five seconds to start, so every test shares it; what a test leaves running in
it is stopped by the fixture that hands it out. Workers find the packages by PYTHONPATH, as on a
cluster where they are not installed. Its JVM and its workers start as those of pipelines do, but for
the compiler: what a test runs is not worth being compiled twice.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.peers.maven import PeerUnavailable
from tests.peers.spark_kafka import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS: Mapping[str, str] = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    # A worker that is stuck fails its test with a reason, before the test's own time is over.
    "spark.python.worker.idleTimeoutSeconds": "600",
    "spark.python.worker.killOnIdleTimeout": "true",
}
BRIEF_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def require_spark() -> None:
    """Skips the test, saying why, where Spark cannot be run."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    if shutil.which("java") is None:
        pytest.skip("Java 17 is not installed")


@contextmanager
def spark_session(directory: Path, *, master: str = "local[2]", **settings: str) -> Iterator[SparkSession]:
    """A session that keeps its scratch files in `directory`; `a_b=…` becomes `a.b=…`."""
    require_spark()
    import pyspark
    from pyspark.sql import SparkSession

    from barnabas.pipelines.spark.jvm.class_sharing import sharing_options
    from barnabas.pipelines.spark.jvm.session import is_one_process, use_unzipped_home

    paths = [str(REPOSITORY / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    use_unzipped_home()
    builder = SparkSession.builder.master(master).appName("barnabas-tests")
    chosen = {
        **SETTINGS,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    jars = _jars()
    if jars:
        chosen["spark.driver.extraClassPath"] = jars
    if is_one_process(master):
        chosen.setdefault("spark.python.daemon.module", "pyspark_barnabas.worker.daemon")
    shared = sharing_options(chosen, pyspark.__version__)
    chosen.setdefault("spark.driver.extraJavaOptions", f"{BRIEF_JVM} {shared}".strip())
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session.stop()


def activate(session: SparkSession) -> None:
    """Spark looks formats up in the session that is active on this thread: a pipeline's own, after it ran."""
    from pyspark.sql import SparkSession

    jvm: Any = session._jvm
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(session._jsparkSession)


def _jars() -> str:
    try:
        return os.pathsep.join(map(str, connector_jars()))
    except PeerUnavailable:
        return ""
