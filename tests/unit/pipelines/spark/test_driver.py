"""Events of a driver when a pipeline ends, and its own end; without Spark."""

from __future__ import annotations

import io
import json
import os
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.pipelines.spark import driver, runner
from barnabas.pipelines.spark.context.connectivity_checks import BrokerMissing, TopicMissing
from barnabas.pipelines.spark.context.run_context import (
    Away,
    PipelineFailed,
    PipelineInvalid,
    Run,
    TooManyErrors,
)
from barnabas.pipelines.spark.driver import JVM_GONE, Driver
from barnabas.pipelines.spec.validation import load_document

SPEC = load_document({"name": "p", "source": {"type": "rate"}, "sink": {"type": "console"}})
ORDER = {"attempt": 3, "bootstrap": "broker:1", "state_location": "state", "generation": 0}


@pytest.fixture
def made() -> Driver:
    found = Driver.__new__(Driver)
    found._events = io.StringIO()
    found._lock = threading.Lock()
    found._spark = cast("Any", None)
    found._is_finishing = False
    return found


def ended(made: Driver, monkeypatch: pytest.MonkeyPatch, failure: Exception, *later: Exception) -> Any:
    """Event of an attempt that fails; `later` is raised when the brokers are asked again."""
    seen: list[Run] = []

    def fail(run: Run, *_: Any, **__: Any) -> None:
        seen.append(run)
        raise failure

    answers: list[Exception | None] = [None, *later]

    def check(*_: Any) -> None:
        answer = answers.pop(0) if answers else None
        if answer is not None:
            raise answer

    monkeypatch.setattr(runner, "run_pipeline", fail)
    monkeypatch.setattr(driver, "check_topics", check)
    made._work(SPEC, ORDER, threading.Event())
    assert all(run.is_confined for run in seen)
    event = json.loads(cast("io.StringIO", made._events).getvalue())
    assert (event["event"], event["name"], event["attempt"]) == ("ended", "p", 3)
    return event


def test_a_failure_counts_and_is_tried_again(made: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    event = ended(made, monkeypatch, PipelineFailed("disk full"))
    assert (event["error"], event["is_final"], event["is_counted"]) == ("disk full", False, True)


@pytest.mark.parametrize("failure", [Away("no connection"), BrokerMissing("nobody")])
def test_an_attempt_without_a_peer_does_not_count(
    made: Driver, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    event = ended(made, monkeypatch, failure)
    assert (event["is_final"], event["is_counted"]) == (False, False)


def test_after_any_failure_the_brokers_are_asked_whether_they_are_there(
    made: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = ended(made, monkeypatch, RuntimeError("something odd"), BrokerMissing("nobody"))
    assert (event["error"], event["is_counted"]) == ("something odd", False)


def test_a_topic_that_is_gone_counts(made: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended(made, monkeypatch, PipelineFailed("no topic"), TopicMissing("no topic"))["is_counted"]


@pytest.mark.parametrize("failure", [PipelineInvalid("no column"), TooManyErrors("9 of 10 are bad")])
def test_what_a_person_has_to_decide_is_final(
    made: Driver, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    assert ended(made, monkeypatch, failure)["is_final"]


def test_a_driver_without_its_jvm_ends_unless_it_does_so_anyway(
    made: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    jvm = cast("Any", SimpleNamespace(wait=lambda: 137))
    with pytest.raises(SystemExit) as left:
        made._watch_jvm(jvm)
    assert left.value.code == JVM_GONE
    assert "JVM has ended with code 137" in capsys.readouterr().err
    made._is_finishing = True
    made._watch_jvm(jvm)
