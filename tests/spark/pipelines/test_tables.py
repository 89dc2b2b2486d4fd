"""Table sink: what Polars and DuckDB read from Delta and Iceberg tables equals the input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.spark.pipelines.conftest import RunSpec
from tests.spark.test_segments import export
from tests.support.broker import Broker
from tests.support.fixtures import TopicFactory, create_topic
from tests.support.table_reading import data_paths, live_paths, read_rows
from tests.support.topics import consume, produce

FORMATS = ("delta", "iceberg")
REASON = "__connect.errors.exception.message"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    return tmp_path / "lake"


def copying(source: str, lake: Path, kind: str, **sink: Any) -> dict[str, Any]:
    return {
        "name": "copy",
        "source": {
            "type": "topic",
            "topics": source,
            "schema": "id BIGINT, day STRING",
            "max_offsets_per_trigger": 4,
        },
        "sink": {"type": "table", "format": kind, "path": str(lake), **sink},
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_a_topic_becomes_a_table_by_partition(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, lake: Path, kind: str
) -> None:
    source = new_topic(partitions=2)
    rows = [{"id": at, "day": f"a/ b={at % 2}" if at % 3 else None} for at in range(10)]
    produce(bootstrap, source, rows)
    run_spec(copying(source, lake, kind, partition_by=["day"]))
    assert sorted(read_rows(kind, lake), key=lambda row: row["id"]) == rows
    assert data_paths(lake) == set(live_paths(kind, lake))


def keyed(source: str, lake: Path, kind: str, **sink: Any) -> dict[str, Any]:
    return {
        "name": "keyed",
        "source": {
            "type": "topic",
            "topics": source,
            "schema": "id BIGINT, name STRING",
            "key_format": "text",
            "max_offsets_per_trigger": 5,
        },
        "sink": {"type": "table", "format": kind, "path": str(lake), **sink},
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_a_compacted_topic_becomes_a_table_with_the_last_row_of_each_key(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, lake: Path, kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Without a mode. In a batch and across batches; a tombstone deletes, also a key that comes back."""
    source = new_topic(partitions=2, cleanup_policy="compact")
    changes: list[tuple[str, dict[str, Any] | None]] = [
        ("a", {"id": 1, "name": "one"}), ("a", {"id": 1, "name": "first"}), ("b", {"id": 2, "name": "two"}),
        ("c", {"id": 3, "name": "three"}), ("b", None), ("d", {"id": 4, "name": "four"}), ("a", None),
        ("a", {"id": 9, "name": "again"}), ("d", {"id": 4, "name": "fourth"}), ("e", None),
    ]  # fmt: skip
    last: dict[str, dict[str, Any]] = {}
    for key, value in changes:
        produce(bootstrap, source, [value], key=key.encode())
        last.pop(key, None)
        if value is not None:
            last[key] = {"_key": key, **value}
    run_spec(keyed(source, lake, kind))
    assert "is compacted, so the table keeps the last row of each key" in caplog.text
    assert sorted(read_rows(kind, lake), key=lambda row: row["_key"]) == sorted(
        last.values(), key=lambda row: str(row["_key"])
    )
    produce(bootstrap, source, [None], key=b"c")
    run_spec(keyed(source, lake, kind))
    assert "c" not in {row["_key"] for row in read_rows(kind, lake)}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_follows_its_rows_and_refuses_what_does_not_fit(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, lake: Path, kind: str
) -> None:
    """A new column, a wider type, a value that the table's type cannot hold, and a type that none fits."""
    from barnabas.pipelines.spark.context.run_context import PipelineInvalid

    source, letters = new_topic(), new_topic()
    spec = copying(source, lake, kind)

    def run(schema: str, values: list[dict[str, Any]], **more: Any) -> None:
        produce(bootstrap, source, values)
        sink = {**spec["sink"], **more.pop("sink", {})}
        run_spec({**spec, "source": {**spec["source"], "schema": schema}, "sink": sink, **more})

    run("id INT, name STRING", [{"id": 1, "name": "a"}])
    with pytest.raises(PipelineInvalid, match="no column extra, and evolve is strict"):
        run("id INT, name STRING, extra STRING", [], sink={"evolve": "strict"})
    with pytest.raises(PipelineInvalid, match="column name is int32, and string in the table"):
        run("id INT, name INT", [])
    large = 5_000_000_000
    run(
        "id BIGINT, name STRING, extra STRUCT<at: TIMESTAMP, tags: ARRAY<STRING>>",
        [{"id": 2, "name": "b", "extra": {"tags": ["x"]}}, {"id": large, "name": "c"}],
        errors={"tolerance": "all", "dead_letter_topic": letters},
    )
    run(
        "id BIGINT, name INT",
        [{"id": 3}, {"id": 4, "name": 7}],
        errors={"tolerance": "all", "dead_letter_topic": letters},
    )
    found = sorted((row["id"], row["name"], row["extra"]) for row in read_rows(kind, lake))
    widened = [] if kind == "delta" else [(large, "c", None)]
    assert found == [(1, "a", None), (2, "b", {"at": None, "tags": ["x"]}), (3, None, None), *widened]
    reasons = [each.headers[REASON].decode() for each in consume(bootstrap, letters)]
    assert len(reasons) == (2 if kind == "delta" else 1)
    assert "column name is int32, and string in the table" in reasons[-1]
    if kind == "delta":
        assert "column id is int32 in the table" in reasons[0]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_driver_that_dies_at_the_commit_leaves_every_row_once(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, lake: Path, tmp_path: Path, kind: str,
    monkeypatch: pytest.MonkeyPatch, is_committed: bool,
) -> None:  # fmt: skip
    """Also if the checkpoint has lost the plan of that batch, which only the table knows then."""
    from barnabas.pipelines.spark.context.run_context import PipelineFailed
    from barnabas.pipelines.tables import commits

    source = new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(10)])
    commit_batch, calls = commits.commit_batch, [0]

    def dying(*arguments: Any) -> bool:
        calls[0] += 1
        if calls[0] == 2:
            if is_committed:
                commit_batch(*arguments)
            raise RuntimeError("killed")
        return commit_batch(*arguments)

    monkeypatch.setattr(commits, "commit_batch", dying)
    with pytest.raises(PipelineFailed, match="killed"):
        run_spec(copying(source, lake, kind))
    if is_committed:
        plan = tmp_path / "state" / "copy" / "0" / "checkpoint" / "offsets" / "1"
        plan.write_bytes(plan.read_bytes()[:3])
        plan.with_name(".1.crc").unlink()
        produce(bootstrap, source, [{"id": at} for at in range(10, 12)])
    run_spec(copying(source, lake, kind))
    assert sorted(row["id"] for row in read_rows(kind, lake)) == [*range(12 if is_committed else 10)]
    assert data_paths(lake) == set(live_paths(kind, lake))


def test_a_topic_that_is_created_again_is_noticed_and_read_when_asked(
    run_spec: RunSpec, bootstrap: str, broker: Broker, new_topic: TopicFactory, lake: Path
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source = new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(6)])
    spec = copying(source, lake, "delta")
    run_spec(spec)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([source])[source].result()
    create_topic(broker, source)
    produce(bootstrap, source, [{"id": at} for at in range(100, 106)])
    with pytest.raises(PipelineFailed, match="created again"):
        run_spec(spec)
    run_spec({**spec, "source": {**spec["source"], "fail_on_data_loss": False}})
    assert sorted(row["id"] for row in read_rows("delta", lake)) == [*range(6), *range(100, 106)]


def test_closed_segments_and_then_the_stream_leave_no_gap_and_no_overlap(
    run_spec: RunSpec, bootstrap: str, broker: Broker, new_topic: TopicFactory, lake: Path, tmp_path: Path
) -> None:
    source = new_topic(segment_bytes=32_768)
    for first in range(0, 100, 10):  # a batch is never split over segments
        produce(bootstrap, source, [{"id": at, "day": "x" * 1_000} for at in range(first, first + 10)])
    manifest = tmp_path / "manifest.json"
    export(broker, source, manifest)
    produce(bootstrap, source, [{"id": at, "day": "live"} for at in range(100, 120)])
    spec = copying(source, lake, "delta", maintenance=2)
    spec["source"]["max_offsets_per_trigger"] = 40
    past = {**spec["source"], "manifest": str(manifest)}
    run_spec({**spec, "source": past, "engine": "segments"})
    closed = sorted(row["id"] for row in read_rows("delta", lake))
    assert closed == [*range(len(closed))]
    assert 0 < len(closed) < 100
    (*_, last) = run_spec(spec)
    assert sorted(row["id"] for row in read_rows("delta", lake)) == [*range(120)]
    assert last.sink is not None
    assert (last.sink["rows"], last.sink["files"]) == (120, len(live_paths("delta", lake)))
