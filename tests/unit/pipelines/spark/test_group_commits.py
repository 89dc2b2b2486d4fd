"""Commits of source offsets: made for sinks that make none, and never in the way of a pipeline."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from tests.support.ports import free_port

from barnabas.pipelines.spec.validation import load_document
from barnabas.pipelines.state.progress import Progress

pytest.importorskip("pyspark", reason="Spark is not installed")

TOPIC = {"type": "topic", "topics": ["orders"]}
FILES = {"type": "files", "path": "lake"}


def commits(bootstrap: str = "127.0.0.1:1", **sections: Any) -> Any:
    from barnabas.pipelines.spark.context.run_context import Run
    from barnabas.pipelines.spark.state.group_commits import GroupCommits

    spec = load_document({"name": "p", "source": TOPIC, "sink": FILES, **sections})
    return GroupCommits(Run(cast("Any", None), spec, bootstrap, "state"))


@pytest.mark.parametrize(
    ("sections", "is_needed"),
    [
        ({}, True),
        ({"sink": {"type": "console"}}, True),
        ({"sink": {"type": "topic", "topic": "out"}}, False),
        ({"sink": {"type": "topic", "topic": "out"}, "delivery": "at-least-once"}, True),
        ({"source": {"type": "rate"}}, False),
    ],
)
def test_sinks_without_commits_of_their_own_need_them(sections: dict[str, Any], is_needed: bool) -> None:
    assert commits(**sections).is_needed == is_needed


def test_a_broker_that_is_away_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    committing = commits(f"127.0.0.1:{free_port()}")
    progress = Progress("p", 3, 1, 1.0, 1, 0, 0, {"orders": {"0": 5}})
    with caplog.at_level(logging.WARNING):
        committing.commit(progress)
        committing.commit(progress)
    (line,) = caplog.messages
    assert line.startswith("pipeline p: the offsets of batch 3 are not committed to group pipeline-p")
