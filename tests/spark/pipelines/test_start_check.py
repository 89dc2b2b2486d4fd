"""A pipeline whose checkpoint is not where it is looked for: refused, with a choice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fixtures import TopicFactory
from tests.support.topics import consume, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_group_that_is_ahead_of_a_missing_checkpoint_is_a_choice(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    from barnabas.pipelines.spark.context.run_context import Beginning, PipelineInvalid, Run
    from barnabas.pipelines.spark.runner import run_pipeline
    from barnabas.pipelines.spec.validation import load_document

    source, out = new_topic(), new_topic()
    document: dict[str, Any] = {
        "name": "once",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT"},
        "sink": {"type": "topic", "topic": out},
        "trigger": "available_now",
    }
    spec = load_document(document)

    def run(state: str, **more: Any) -> None:
        run_pipeline(Run(spark, spec, bootstrap, str(tmp_path / state), **more))

    def ids() -> list[int]:
        return [each.json["id"] for each in consume(bootstrap, out)]

    produce(bootstrap, source, [{"id": 0}, {"id": 1}])
    run("here")
    produce(bootstrap, source, [{"id": 2}])
    with pytest.raises(PipelineInvalid, match=f"group pipeline-once has read {source}-0 up to offset 2, but"):
        run("there")
    assert ids() == [0, 1]
    run("there", beginning=Beginning.FROM_GROUP)
    assert ids() == [0, 1, 2]
    run("there")
    assert ids() == [0, 1, 2], "it has a checkpoint of its own now"
    run("elsewhere", beginning=Beginning.AGAIN)
    assert ids() == [0, 1, 2, 0, 1, 2]
    produce(bootstrap, source, [{"id": 3}])
    run("here", generation=1)
    assert ids()[6:] == [0, 1, 2, 3], "a new generation was asked for"
