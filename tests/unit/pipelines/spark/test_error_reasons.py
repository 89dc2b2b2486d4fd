from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from barnabas.core.errors import KafkaError
from barnabas.pipelines.spark.context.run_context import Away
from barnabas.pipelines.spark.recovery.error_reasons import JVM_ENDED, failure_of, reason_of
from barnabas.pipelines.spec.validation import load_document

SPEC = load_document(
    {"name": "p", "source": {"type": "rate"}, "sink": {"type": "console"}, "trigger": "available_now"}
)
LOST = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure:"
    " Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0):"
    " org.apache.spark.api.python.PythonWorkerException: Python worker process terminated due to idle timeout"
    " (timeout: 1000 seconds)\n\tat org.apache.spark.api.python.BasePythonRunner"
)


def test_a_stuck_worker_is_reported_in_one_sentence() -> None:
    told = "a Python worker made no progress for 1000 s and was killed: is a function stuck?"
    assert reason_of(RuntimeError(LOST), SPEC) == told


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:  SQLSTATE: XXKST"),
        RuntimeError("An error occurred while calling o55.awaitTermination"),
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(111, "Connection refused"),
    ],
)
def test_the_end_of_the_jvm_is_reported_as_that(error: Exception) -> None:
    assert reason_of(error, SPEC) == JVM_ENDED


def test_the_error_of_a_function_is_reported() -> None:
    trace = (
        "STREAM_FAILED\nTraceback (most recent call last):\n  File x\nZeroDivisionError: division by zero\n"
    )
    assert reason_of(RuntimeError(trace), SPEC) == "ZeroDivisionError: division by zero"


def test_a_sentence_of_several_lines_is_whole() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:"
        " [UNSUPPORTED_FEATURE.QUERY_ONLY_CORRUPT_RECORD_COLUMN] Queries from raw JSON/CSV/XML files are"
        " disallowed when the\nreferenced columns only include the corrupt column\n(named `c` by default)."
        " SQLSTATE: 0A000\n=== Streaming Query ===\nIdentifier: p\n\tat org.apache.spark"
    )
    assert reason_of(RuntimeError(text), SPEC) == (
        "[UNSUPPORTED_FEATURE.QUERY_ONLY_CORRUPT_RECORD_COLUMN] Queries from raw JSON/CSV/XML files are"
        " disallowed when the referenced columns only include the corrupt column (named `c` by default)."
    )


def test_a_record_of_several_lines_in_a_complaint_is_one_line() -> None:
    text = "[USER_RAISED_EXCEPTION] not JSON: {\n 1 SQLSTATE: P0001\n\tat org.apache.spark"
    assert reason_of(RuntimeError(text), SPEC) == "not JSON: { 1"


def traced(exception: str, *, carrier: str = "") -> str:
    """As a failed task's text reaches the driver; with a carrier, as a failed `foreachBatch` does."""
    task = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times,"
        " most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (127.0.0.1 executor driver):"
        " org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    process()\n'
        f"{exception}\n\n\tat org.apache.spark.api.python.BasePythonRunner\nDriver stacktrace:\n"
    )
    if not carrier:
        return "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: " + task
    return (
        "[STREAM_FAILED] Query terminated with exception: An exception was raised by the Python Proxy. Return"
        ' Message: Traceback (most recent call last):\n  File "utils.py", line 1, in call\n    raise\n'
        f"{carrier}: An error occurred while calling o99.collectToPython.\n: {task}"
    )


@pytest.mark.parametrize("kind", KafkaError.by_code.values(), ids=lambda kind: kind.__name__)
def test_an_error_of_kafka_keeps_its_name(kind: type[KafkaError]) -> None:
    name = f"barnabas.core.errors.{kind.__name__}"
    assert reason_of(RuntimeError(traced(f"{name}: broker 1 says no")), SPEC) == (
        f"{kind.__name__}: broker 1 says no"
    )
    assert reason_of(RuntimeError(traced(name)), SPEC) == kind.__name__


def test_a_failure_in_a_batch_function_is_reported_without_its_carrier() -> None:
    refused = "pg8000.exceptions.DatabaseError: {'S': 'ERROR', 'C': '22001', 'M': 'value too long'}"
    text = traced(refused, carrier="py4j.protocol.Py4JJavaError")
    assert reason_of(RuntimeError(text), SPEC) == "DatabaseError: value too long (SQLSTATE 22001)"
    unusual = traced("mymodule.TooOld: 1970", carrier="py4j.protocol.Py4JJavaError")
    assert reason_of(RuntimeError(unusual), SPEC) == "TooOld: 1970"


@pytest.mark.parametrize(
    "exception",
    [
        "pyspark_barnabas.shared.cluster.NoBrokerAnswers: 127.0.0.1:9092",
        "barnabas.core.errors.NotEnoughReplicas: 1 of 2",
        "barnabas.core.errors.CoordinatorNotAvailable",
        "barnabas.pipelines.spark.context.run_context.Away: no connection to postgresql://h/d",
        "pg8000.exceptions.InterfaceError: network error",
        "pg8000.exceptions.DatabaseError: {'S': 'FATAL', 'C': '57P01', 'M': 'terminating connection'}",
        "pg8000.exceptions.DatabaseError: {'S': 'ERROR', 'C': '55P03', 'M': 'lock timeout'}",
        "pg8000.exceptions.DatabaseError: {'S': 'ERROR', 'C': '40P01', 'M': 'deadlock detected'}",
        "barnabas.pipelines.spark.formats.registry.RegistryAway: the schema registry answered 503",
    ],
)
def test_a_peer_that_is_out_of_reach_is_no_failure_of_the_pipeline(exception: str) -> None:
    for carrier in ("", "py4j.protocol.Py4JJavaError"):
        assert isinstance(failure_of(RuntimeError(traced(exception, carrier=carrier)), SPEC), Away)


@pytest.mark.parametrize(
    "exception",
    [
        "ValueError: NoBrokerAnswers",
        "barnabas.core.errors.TopicAuthorizationFailed: o",
        "barnabas.core.errors.UnknownTopicOrPartition: o",
        "pg8000.exceptions.DatabaseError: {'S': 'ERROR', 'C': '22001', 'M': 'too long'}",
        "barnabas.pipelines.spark.formats.registry.RegistryError: the schema registry answered 404",
    ],
)
def test_what_another_attempt_would_meet_again_counts(exception: str) -> None:
    assert not isinstance(failure_of(RuntimeError(traced(exception)), SPEC), Away)


def test_a_client_in_java_says_in_its_own_words_that_nothing_answers() -> None:
    text = (
        "Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment"
    )
    assert isinstance(failure_of(RuntimeError(text), SPEC), Away)
