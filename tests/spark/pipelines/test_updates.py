"""Windows that are written to a topic on every change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.topics import consume, produce

AT = "2024-05-01T10:00:00Z"


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_window_is_written_again_whenever_it_changes(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, delivery: str
) -> None:
    clicks, counts, letters = new_topic(), new_topic(), new_topic()
    spec: dict[str, Any] = {
        "name": f"updates-{delivery}",
        "source": {"type": "topic", "topics": clicks, "schema": "page STRING, at TIMESTAMP"},
        "transforms": [
            {"type": "window", "time": "at", "size": "1 minute", "group_by": "page", "emit": "updates",
             "aggregates": {"clicks": "count(*)"}},
        ],
        "sink": {"type": "topic", "topic": counts, "key": ["page"]},
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
        "delivery": delivery,
    }  # fmt: skip
    produce(bootstrap, clicks, [{"page": "/", "at": AT}, {"page": "/", "at": AT}, b"not a click"])
    run_spec(spec)
    assert [row.json["clicks"] for row in consume(bootstrap, counts)] == [2]
    assert [row.value for row in consume(bootstrap, letters)] == [b"not a click"]
    produce(bootstrap, clicks, [{"page": "/", "at": AT}])
    run_spec(spec)
    assert [row.json["clicks"] for row in consume(bootstrap, counts)] == [2, 3]
