"""The run does not pass for what it was not able to do."""

from __future__ import annotations

import argparse
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from tests.chaos import run
from tests.chaos.insisting import insist
from tests.chaos.verdict import LOG_CHARACTERS, MARK, VERDICT_CHARACTERS, report


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """In which places a run has begun."""
    places: list[object] = []

    def begin(_: argparse.Namespace, place: object) -> int:
        places.append(place)
        return 0

    monkeypatch.setattr(run, "_run", begin)
    return places


def test_without_namespaces_it_fails_and_says_why(
    begun: list[object], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "why_not", lambda: "network namespaces need root")
    assert run.main(["--seconds", "1"]) != 0
    assert begun == []
    assert "network namespaces need root" in caplog.text


def test_without_namespaces_it_runs_if_that_is_asked_for(
    begun: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "why_not", lambda: "network namespaces need root")
    assert run.main(["--seconds", "1", "--loopback"]) == 0
    assert begun == [None]


def test_a_report_begins_and_ends_with_the_verdict() -> None:
    log = "the brokers said: nothing\n" * LOG_CHARACTERS
    verdict = f"{MARK}seed 7: 1 complaints\nlost: p 9"
    told = report(f"{log}{verdict}\n", "Traceback")
    assert told.startswith(verdict)
    assert told.endswith(verdict)
    assert "Traceback" in told
    assert len(told) < LOG_CHARACTERS + 3 * VERDICT_CHARACTERS + 100


def test_a_verdict_that_is_long_keeps_its_beginning() -> None:
    told = report(f"log\n{MARK}seed 7: 50 complaints\n" + "lost: p 9\n" * VERDICT_CHARACTERS, "")
    assert told.startswith(f"{MARK}seed 7: 50 complaints")
    assert len(told) < 3 * VERDICT_CHARACTERS


def test_a_run_that_was_ended_reports_what_it_said_last() -> None:
    told = report("fault: kill the leader\nnow everything heals\n", "")
    assert told.startswith(f"{MARK}none")
    assert told.endswith("now everything heals")


class SlowAdmin:
    """A cluster that makes a topic and answers too late."""

    def __init__(self, *codes: int) -> None:
        self._codes = iter(codes)
        self.asked = 0

    def create_topics(self, topics: list[NewTopic]) -> dict[str, Future[None]]:
        self.asked += 1
        made: Future[None] = Future()
        code = next(self._codes, None)
        if code is None:
            made.set_result(None)
        else:
            made.set_exception(KafkaException(KafkaError(code)))
        return {topics[0].topic: made}


def test_a_topic_that_is_made_too_late_is_asked_for_again() -> None:
    admin = SlowAdmin(KafkaError.REQUEST_TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS)
    insist(lambda: run.make_topic(admin, NewTopic("in", 1, 1)))
    assert admin.asked == 2


def test_a_topic_that_is_refused_is_not_made() -> None:
    with pytest.raises(KafkaException):
        run.make_topic(SlowAdmin(KafkaError.INVALID_REPLICATION_FACTOR), NewTopic("in", 1, 1))
