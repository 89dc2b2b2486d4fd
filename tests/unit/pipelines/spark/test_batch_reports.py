from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.pipelines.spark.context.run_context import TooManyErrors
from barnabas.pipelines.spark.state.batch_reports import BatchReports
from barnabas.pipelines.spec.validation import load_document
from barnabas.pipelines.state.progress import Progress

SPEC = load_document(
    {
        "name": "p",
        "source": {"type": "rate"},
        "sink": {"type": "console"},
        "errors": {"tolerance": "all", "max_error_ratio": 0.5},
    }
)


class Query:
    """A query that keeps its last three reports."""

    def __init__(self) -> None:
        self._reports: list[Any] = []
        self._jsq = SimpleNamespace(recentProgress=lambda: self._reports)

    def ran(self, batch_id: int, *, bad: int = 0, is_idle: bool = False) -> None:
        report = {
            "batchId": batch_id,
            "durationMs": {"triggerExecution": 1} | ({} if is_idle else {"addBatch": 1}),
            "observedMetrics": {"decoded": {"records": 10, "errors": bad}},
        }
        row = SimpleNamespace(batchId=lambda: batch_id, json=lambda: json.dumps(report))
        self._reports = [*self._reports[-2:], row]


def following(query: Query) -> tuple[BatchReports, list[int]]:
    seen: list[int] = []

    def on_progress(progress: Progress) -> None:
        seen.append(progress.batch_id)

    reports = BatchReports(SPEC, on_progress)
    reports._query = cast("Any", query)
    return reports, seen


def test_every_micro_batch_is_reported_once_and_in_order() -> None:
    query = Query()
    reports, seen = following(query)
    for batch_id in range(8):
        query.ran(batch_id)
        if batch_id % 3 == 2:
            reports.look()
            reports.look()
    reports.look()
    assert seen == list(range(8))
    assert reports.batch_id == 7


def test_an_idle_trigger_does_not_stand_for_the_batch_that_comes_next() -> None:
    query = Query()
    reports, seen = following(query)
    query.ran(0)
    query.ran(1, is_idle=True)
    reports.look()
    query.ran(1)
    query.ran(2, is_idle=True)
    reports.look()
    assert seen == [0, 1]
    assert reports.batch_id == 1


def test_reports_that_are_left_when_a_query_ends_are_handed_on() -> None:
    query = Query()
    reports, seen = following(query)
    reports.follow(cast("Any", query))
    query.ran(0)
    query.ran(1)
    reports.stop()
    reports.stop()
    assert seen == [0, 1]


def test_more_bad_records_than_allowed_stop_the_pipeline() -> None:
    query = Query()
    reports, _ = following(query)
    query.ran(0, bad=5)
    reports.look()
    reports.check()
    query.ran(1, bad=6)
    query.ran(2)
    reports.look()
    with pytest.raises(
        TooManyErrors, match=r"batch 1: 6 of 10 records are bad, more than max_error_ratio 0\.5"
    ):
        reports.check()
