from __future__ import annotations

import logging
import os
import re
import sys

import pytest

from barnabas.client.security.settings import SECRETS
from barnabas.pipelines.spark.jvm import session


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)


def test_workers_on_this_machine_run_the_python_of_the_driver() -> None:
    session._prepare_environment(session.session_defaults("local[2]"))
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_python_that_a_spec_names_is_the_workers() -> None:
    conf = {**session.session_defaults("yarn"), "spark.pyspark.python": "./pack/bin/python"}
    session._prepare_environment(conf)
    assert os.environ["PYSPARK_PYTHON"] == "./pack/bin/python"
    assert "SPARK_LOCAL_IP" not in os.environ


@pytest.mark.parametrize(
    ("error", "is_printed"), [(EOFError(), False), (ConnectionResetError(), False), (ValueError("x"), True)]
)
def test_a_connection_that_the_jvm_closes_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, is_printed: bool
) -> None:
    accumulators = pytest.importorskip("pyspark.accumulators")
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        monkeypatch.setattr(server, "handle_error", server.handle_error)  # restored after the test
    session.quiet_accumulators()
    made = accumulators.AccumulatorTCPServer(("127.0.0.1", 0), accumulators.UpdateRequestHandler, "token")
    made.server_close()
    try:
        raise error
    except (EOFError, ConnectionError, ValueError):
        made.handle_error(None, ("127.0.0.1", 1))
    assert ("Traceback" in capsys.readouterr().err) is is_printed


def test_py4j_logs_nothing_as_the_root() -> None:
    pytest.importorskip("pyspark")
    session.quiet_loggers()
    root = logging.getLogger()
    records = [
        logging.LogRecord("root", logging.ERROR, path, 1, "text", (), None)
        for path in ("/lib/py4j/java_gateway.py", "/home/py4jobs/job.py")
    ]
    try:
        assert [bool(root.filter(each)) for each in records] == [False, True]
    finally:
        root.removeFilter(session._is_not_of_py4j)


def test_without_java_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(session.SparkMissing, match="Spark needs Java 17"):
        session.open_session("local", {}, name="none")


def test_what_keeps_sparks_logger_quiet_is_there() -> None:
    assert session.QUIET.is_file()


def test_spark_shows_no_secret_among_options() -> None:
    defaults = session.session_defaults("yarn")
    for pattern in (defaults["spark.redaction.regex"], defaults["spark.sql.redaction.options.regex"]):
        for name in SECRETS:
            assert re.search(pattern, f"kafka.{name}"), name
        assert not re.search(pattern, "kafka.bootstrap.servers")
