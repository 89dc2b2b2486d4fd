"""Checkpoints with an unfinished last micro-batch: truncated files, and batches too large to finish."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.topics import consume, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def cut_short(checkpoint: Path, kind: str, count: int = 1) -> None:
    """As a machine that lost power leaves the last files of that kind."""
    files = sorted((each for each in (checkpoint / kind).iterdir() if each.name.isdecimal()), key=_number)
    for file in files[-count:]:
        file.write_bytes(file.read_bytes()[:3])


def _number(path: Path) -> int:
    return int(path.name)


def ids(bootstrap: str, topic: str) -> list[int]:
    return sorted(each.json["id"] for each in consume(bootstrap, topic))


@pytest.mark.parametrize("kinds", [["commits"], ["offsets"], ["commits", "offsets"]], ids="-".join)
def test_a_pipeline_between_topics_goes_on_from_files_that_are_cut_short(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path, kinds: list[str]
) -> None:
    source, out = new_topic(), new_topic()
    spec = {
        "name": "cut",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT"},
        "sink": {"type": "topic", "topic": out},
    }
    for first in (0, 10):
        produce(bootstrap, source, [{"id": at} for at in range(first, first + 10)])
        run_spec(spec)
    for kind in kinds:
        cut_short(tmp_path / "state" / "cut" / "0" / "checkpoint", kind)
    produce(bootstrap, source, [{"id": at} for at in range(20, 25)])
    run_spec(spec)
    assert ids(bootstrap, out) == list(range(25))


def test_a_batch_of_files_with_an_unknown_end_needs_a_decision(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, spark: SparkSession, tmp_path: Path
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineInvalid

    source, out = new_topic(), tmp_path / "out"
    spec = {
        "name": "cut",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT"},
        "sink": {"type": "files", "path": str(out), "format": "json"},
    }
    for first in (0, 10):
        produce(bootstrap, source, [{"id": at} for at in range(first, first + 10)])
        run_spec(spec)
    checkpoint = tmp_path / "state" / "cut" / "0" / "checkpoint"
    cut_short(checkpoint, "commits")
    run_spec(spec)
    cut_short(checkpoint, "commits")
    cut_short(checkpoint, "offsets")
    with pytest.raises(PipelineInvalid, match=r"truncated.*begin again"):
        run_spec(spec)
    assert sorted(row[0] for row in spark.read.json(str(out)).select("id").collect()) == list(range(20))


def test_a_pipeline_to_files_goes_on_from_several_commits_that_are_cut_short(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, spark: SparkSession, tmp_path: Path
) -> None:
    """Both queries of the pipeline: that of the files, and that of the dead letters."""
    source, letters, out = new_topic(), new_topic(), tmp_path / "out"
    spec = {
        "name": "cut",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT"},
        "sink": {"type": "files", "path": str(out), "format": "json"},
        "errors": {"tolerance": "all", "dead_letter_topic": letters},
    }
    state = tmp_path / "state" / "cut" / "0"
    for at in range(4):
        produce(bootstrap, source, [{"id": at}, b"junk"])
        if at == 3:
            for purpose in ("checkpoint", "dead-letters"):
                cut_short(state / purpose, "commits", 2)
            cut_short(state / "dead-letters", "offsets")
        run_spec(spec)
    assert sorted(row[0] for row in spark.read.json(str(out)).select("id").collect()) == list(range(4))
    assert len(consume(bootstrap, letters)) == 4


@pytest.mark.parametrize("kind", ["topic", "files"])
def test_an_older_copy_of_a_checkpoint_leaves_no_record_out(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """The sink holds a batch under a number that the query would use again, for other records."""
    from barnabas.pipelines.spark.context.run_context import PipelineInvalid

    source, out, path = new_topic(), new_topic(), tmp_path / "out"
    sink = {"type": "topic", "topic": out} if kind == "topic" else {"type": "files", "path": str(path)}
    spec = {
        "name": "old",
        "source": {"type": "topic", "topics": source, "schema": "id BIGINT"},
        "sink": sink,
    }
    produce(bootstrap, source, [{"id": at} for at in range(10)])
    run_spec(spec)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    produce(bootstrap, source, [{"id": at} for at in range(10, 20)])
    run_spec(spec)
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")
    produce(bootstrap, source, [{"id": at} for at in range(20, 30)])
    if kind == "topic":
        run_spec(spec)
        assert ids(bootstrap, out) == list(range(30))
        return
    with pytest.raises(PipelineInvalid, match=r"ends with batch 0, but the sink holds batch 1.*begin again"):
        run_spec(spec)
    assert sorted(row[0] for row in spark.read.parquet(str(path)).select("id").collect()) == list(range(20))


def fail(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("id", F.raise_error(F.lit("as if it took too long")).cast("bigint"))


@pytest.mark.parametrize("kind", ["topic", "files"])
def test_a_batch_that_was_planned_too_large_is_planned_again_in_parts(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source, out = new_topic(), new_topic()
    path = tmp_path / "out"
    produce(bootstrap, source, [{"id": at} for at in range(100)])
    reading: dict[str, Any] = {"type": "topic", "topics": source, "schema": "id BIGINT"}
    sink = {"type": "topic", "topic": out} if kind == "topic" else {"type": "files", "path": str(path)}
    spec = {"name": "large", "source": reading, "sink": sink}
    with pytest.raises(PipelineFailed, match="as if it took too long"):
        run_spec(spec, functions=[fail])
    bounded = {**spec, "source": {**reading, "max_offsets_per_trigger": 30}}
    progress = run_spec(bounded)
    assert [each.records for each in progress if each.records] == [30, 30, 30, 10]
    found = (
        ids(bootstrap, out)
        if kind == "topic"
        else sorted(row[0] for row in spark.read.parquet(str(path)).select("id").collect())
    )
    assert found == list(range(100))
