"""Offsets behind the latest, as Spark's own connector reports them."""

from __future__ import annotations

import json
from typing import Any

from pyspark_barnabas import offsets_behind_latest


def report(end: Any, latest: Any) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest}]}


def test_each_partition_counts() -> None:
    end = {"orders": {"0": 5, "1": 10}, "clicks": {"0": 0}}
    latest = {"orders": {"0": 8, "1": 10}, "clicks": {"0": 6}}
    expected = {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 6, "avgOffsetsBehindLatest": 3}
    assert offsets_behind_latest(report(end, latest)) == [expected]
    assert offsets_behind_latest(report(json.dumps(end), json.dumps(latest))) == [expected]


def test_a_partition_that_was_not_read_yet_is_behind_by_all_its_records() -> None:
    (found,) = offsets_behind_latest(report({"orders": {"0": 5}}, {"orders": {"0": 5, "1": 7}}))
    assert found["maxOffsetsBehindLatest"] == 7


def test_other_sources_and_queries_without_progress_have_no_numbers() -> None:
    assert offsets_behind_latest(None) == []
    assert offsets_behind_latest(report({"logOffset": 3}, None)) == [{}]
