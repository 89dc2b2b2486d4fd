"""A failed micro-batch is searched a bounded number of times, and by trials that may stop."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.recovery import quarantine
from barnabas.pipelines.spark.recovery.bisect_bad_records import POISON_MAX, Range, Trial
from barnabas.pipelines.spark.recovery.quarantine import letters_id, quarantine_more
from barnabas.pipelines.spec.validation import load_document

SPEC = {
    "name": "p",
    "source": {"type": "topic", "topics": "t", "schema": "n INT"},
    "sink": {"type": "topic", "topic": "out"},
    "errors": {"tolerance": "all", "dead_letter_topic": "dead"},
}
Search = Callable[..., bool]


class Trials:
    """Of the records 0 to 100 of one partition; what was noted in the end."""

    def __init__(self) -> None:
        self.bad: set[int] = set()
        self.noted: dict[str, str] = {}
        self.on_try: Callable[[], None] = lambda: None

    def failure(self, ranges: Sequence[Range], *_: Any) -> Trial | None:
        self.on_try()
        hit = any(each.begin <= at < each.end for each in ranges for at in self.bad)
        return Trial("boom", is_of_transforms=True) if hit else None

    def note(self, _: Run, __: str, text: str) -> None:
        self.noted |= json.loads(text)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    made = Trials()
    monkeypatch.setattr(quarantine, "failed_ranges", lambda _: [Range("t", 0, 0, 100)])
    monkeypatch.setattr(quarantine, "_failure", made.failure)
    monkeypatch.setattr(quarantine, "add_note", made.note)
    return made


def search(quarantined: Mapping[str, str], stopped: threading.Event | None = None) -> bool:
    spark: Any = None
    run = Run(spark, load_document(SPEC), "localhost:9092", "state", quarantine=quarantined)
    return quarantine_more(run, lambda rows: rows, stopped)


def test_what_breaks_the_batch_is_noted_beside_what_was_noted_before(trials: Trials) -> None:
    trials.bad = {7, 8}
    assert search({"t/0/3": "old"})
    assert trials.noted == {"t/0/7": "boom", "t/0/8": "boom"}, "what was noted before stays where it is"


def test_a_batch_that_fails_by_what_is_noted_already_is_not_run_again(trials: Trials) -> None:
    trials.bad = {7}
    assert not search({"t/0/7": "boom"})


def test_a_batch_that_passes_its_trials_is_not_run_again(trials: Trials) -> None:
    assert not search({})


def test_all_that_is_noted_of_one_batch_counts(trials: Trials) -> None:
    """Or a batch that is broken by another record each time would be run again for ever."""
    trials.bad = {99}
    before = {f"t/0/{at}": "boom" for at in range(POISON_MAX)}
    assert not search(before)
    assert search({f"t/1/{at}": "boom" for at in range(POISON_MAX)})


def test_a_pipeline_that_is_to_stop_tries_nothing_more(trials: Trials) -> None:
    trials.bad = {7}
    stopped = threading.Event()
    trials.on_try = stopped.set
    assert not search({}, stopped)
    assert trials.noted == {}


def test_letters_are_known_by_their_records_not_by_how_many_came_before() -> None:
    """A number that came again, after a note was lost, let the letters of other records pass for written."""
    first = letters_id("query", ["t/0/3", "t/0/7"])
    assert first == letters_id("query", ["t/0/7", "t/0/3"])
    assert len({first, letters_id("query", ["t/0/7"]), letters_id("other", ["t/0/3", "t/0/7"])}) == 3
