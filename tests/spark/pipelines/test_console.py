"""Console sink: every row of a micro-batch counts, also those that are not shown."""

from __future__ import annotations

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.topics import produce


def test_rows_that_are_not_shown_are_counted(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    source = new_topic()
    produce(bootstrap, source, [{"n": number} for number in range(100)])
    (progress,) = run_spec(
        {
            "name": "look",
            "source": {"type": "topic", "topics": source, "schema": "n INT"},
            "sink": {"type": "console", "rows": 5},
        }
    )
    assert progress.records == 100
    shown = capsys.readouterr().out
    assert "-- look, batch 0" in shown
    assert "95 more rows are not shown" in shown
    assert max(map(len, shown.splitlines())) < 80, "only the columns of the value are shown"
