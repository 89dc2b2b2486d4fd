from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.pipelines.spark.reasons import reason_of
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


def test_a_worker_that_was_silent_is_told_in_one_sentence() -> None:
    told = "a Python worker said nothing for 1000 s and was killed: is a function stuck?"
    assert reason_of(RuntimeError(LOST), SPEC) == told


def test_what_a_function_raised_is_told() -> None:
    trace = (
        "STREAM_FAILED\nTraceback (most recent call last):\n  File x\nZeroDivisionError: division by zero\n"
    )
    assert reason_of(RuntimeError(trace), SPEC) == "ZeroDivisionError: division by zero"
