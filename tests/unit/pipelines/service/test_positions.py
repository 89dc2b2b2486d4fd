"""Position of a pipeline by its checkpoint, its group and its reports, and its lag."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.service.errors import ServiceError
from barnabas.pipelines.service.lags import Lags
from barnabas.pipelines.service.positions import Positions, altered, by_topic
from barnabas.pipelines.service.store import Stored, Target
from barnabas.pipelines.service.supervisor import State, Supervised
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.validation import load_document
from barnabas.pipelines.state.progress import Progress
from barnabas.protocol.offset_numbers import EARLIEST, LATEST


def topic_partition(partition: int) -> TopicPartition:
    return TopicPartition("s", partition)


def spec_of(sink: str = "topic", **source: Any) -> PipelineSpec:
    sinks = {"topic": {"type": "topic", "topic": "o"}, "files": {"type": "files", "path": "o"}}
    reading = {"type": "topic", "topics": "s", "schema": "id BIGINT", **source}
    return load_document({"name": "p", "source": reading, "sink": sinks[sink]})


class FixedGroups:
    def __init__(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        self.found = dict(offsets or {})

    async def offsets(self, group_id: str) -> dict[TopicPartition, int]:
        assert group_id == "pipeline-p"
        return self.found

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None: ...
    async def delete(self, group_id: str) -> None: ...


def journal(state: Path, batch_id: int, offsets: Mapping[str, int], *, is_done: bool = True) -> None:
    home = state / "p" / "0" / "checkpoint"
    for kind in ("offsets", "commits"):
        (home / kind).mkdir(parents=True, exist_ok=True)
    (home / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps({'s': offsets})}")
    if is_done:
        (home / "commits" / str(batch_id)).write_text("v1\n{}")


def report(batch_id: int, offsets: Mapping[str, int]) -> Progress:
    return Progress("p", batch_id, 1, 1.0, 1, 0, 0, {"s": dict(offsets)})


async def test_a_report_that_is_behind_the_checkpoint_does_not_count(tmp_path: Path) -> None:
    journal(tmp_path, 7, {"0": 10, "1": 200})
    journal(tmp_path, 8, {"0": 10, "1": 900}, is_done=False)
    positions = Positions(FixedGroups(), str(tmp_path))
    found = await positions.of_topics(Stored("p", {}), spec_of(), report(2, {"0": 10, "1": 50}))
    assert found == {topic_partition(0): 10, topic_partition(1): 200}


async def test_a_batch_that_the_sink_has_committed_is_done_though_spark_has_not_noted_it(
    tmp_path: Path,
) -> None:
    journal(tmp_path, 7, {"0": 10, "1": 200})
    groups = FixedGroups({topic_partition(1): 900, topic_partition(0): 4})
    positions = Positions(groups, str(tmp_path))
    assert await positions.of_topics(Stored("p", {}), spec_of(), None) == {
        topic_partition(0): 10,
        topic_partition(1): 900,
    }
    files = await positions.of_topics(Stored("p", {}), spec_of("files"), None)
    assert files == {topic_partition(0): 10, topic_partition(1): 200}


async def test_a_checkpoint_elsewhere_is_known_by_reports() -> None:
    positions = Positions(FixedGroups(), "s3a://bucket/state")
    found = await positions.of_topics(Stored("p", {}), spec_of(), report(2, {"0": 10}))
    assert found == {topic_partition(0): 10}


async def test_offsets_that_were_set_hold_until_a_batch_has_read_on(tmp_path: Path) -> None:
    positions = Positions(FixedGroups({topic_partition(1): 99}), str(tmp_path))
    stored = Stored("p", {}, starting_offsets={"s": {"0": 5, "1": EARLIEST}})
    assert await positions.of_topics(stored, spec_of(), None) == {
        topic_partition(0): 5,
        topic_partition(1): EARLIEST,
    }
    journal(tmp_path, 0, {"0": 6, "1": 3})
    assert await positions.of_topics(stored, spec_of("files"), None) == {
        topic_partition(0): 6,
        topic_partition(1): 3,
    }


def row(partition: int, offset: Any, topic: str = "s") -> dict[str, Any]:
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": partition},
        "offset": None if offset is None else {"kafka_offset": offset},
    }


def test_partitions_that_a_change_does_not_name_keep_their_offsets() -> None:
    first = altered({topic_partition(0): 10, topic_partition(1): 10}, [row(0, 5)], spec_of())
    second = altered(first, [row(1, 7)], spec_of())
    assert by_topic(second) == {"s": {"0": 5, "1": 7}}


def test_a_partition_without_an_offset_begins_where_the_spec_says() -> None:
    assert altered({topic_partition(0): 10}, [row(0, None)], spec_of()) == {topic_partition(0): EARLIEST}
    assert altered({}, [row(0, None)], spec_of(starting_offsets="latest")) == {topic_partition(0): LATEST}
    named = spec_of(starting_offsets='{"s": {"0": 3}}')
    assert altered({}, [row(0, None), row(1, None)], named) == {
        topic_partition(0): 3,
        topic_partition(1): EARLIEST,
    }
    with pytest.raises(ServiceError, match="reset all"):
        altered({}, [row(0, None)], spec_of(starting_timestamp=1))


@pytest.mark.parametrize("wrong", [row(0, 1, "other"), row(-1, 1), row(0, -1), row(0, "x"), {"partition": 1}])
def test_a_change_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ServiceError) as caught:
        altered({}, [wrong], spec_of())
    assert caught.value.code == 400


class FixedEnds:
    def __init__(self) -> None:
        self.ends = {
            LATEST: {topic_partition(0): 100, topic_partition(1): 50},
            EARLIEST: {topic_partition(0): 20, topic_partition(1): 0},
        }
        self.failure: Exception | None = None

    async def topic_id(self, topic: str) -> str:
        return f"id of {topic}"

    async def offsets(self, topic: str, timestamp: int) -> dict[TopicPartition, int]:
        assert topic == "s"
        if self.failure is not None:
            raise self.failure
        return self.ends[timestamp]


async def lag_of(state: Path, spec: PipelineSpec, in_state: State, ends: FixedEnds) -> int | None:
    pipeline = Supervised(spec, Target.PAUSED, 0, in_state, lag=0)
    lags = Lags(Positions(FixedGroups(), str(state)), ends, lambda: [(Stored("p", {}), pipeline)])
    await lags.refresh()
    return pipeline.lag


async def test_records_wait_for_a_pipeline_that_does_not_run(tmp_path: Path) -> None:
    ends = FixedEnds()
    assert await lag_of(tmp_path, spec_of(), State.FAILED, ends) == 80 + 50
    journal(tmp_path, 0, {"0": 90})
    assert await lag_of(tmp_path, spec_of(), State.PAUSED, ends) == 10 + 50
    journal(tmp_path, 1, {"0": 90, "1": 50})
    assert await lag_of(tmp_path, spec_of(), State.RUNNING, ends) == 10


async def test_a_lag_that_cannot_be_known_is_not_0(tmp_path: Path) -> None:
    ends = FixedEnds()
    assert await lag_of(tmp_path, spec_of(bootstrap="other:9092"), State.PAUSED, ends) is None
    assert await lag_of(tmp_path, spec_of(bootstrap="other:9092"), State.RUNNING, ends) == 0
    assert await lag_of(tmp_path, spec_of(starting_offsets="latest"), State.PAUSED, ends) is None
    ends.failure = ClusterUnreachable("no broker")
    assert await lag_of(tmp_path, spec_of(), State.PAUSED, ends) is None
