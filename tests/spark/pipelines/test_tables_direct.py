"""Table sink without Spark's decoder: the same rows, counts and dead letters as with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.table_reading import data_paths, live_paths, read_rows
from tests.support.topics import consume, produce

FORMATS = ("delta", "iceberg")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    return tmp_path / "lake"


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Way of each micro-batch that was tried without Spark: `plain`, or `doubtful`."""
    from barnabas.pipelines.spark.sinks.table.direct import Route

    seen: list[str] = []
    note = Route.note_outcome

    def noting(route: Route, *, is_plain: bool) -> None:
        seen.append("plain" if is_plain else "doubtful")
        note(route, is_plain=is_plain)

    monkeypatch.setattr(Route, "note_outcome", noting)
    return seen


def copying(source: str, lake: Path, kind: str = "delta", **more: Any) -> dict[str, Any]:
    return {
        "name": "copy",
        "source": {
            "type": "topic",
            "topics": source,
            "schema": "id BIGINT, name STRING, at TIMESTAMP",
            "max_offsets_per_trigger": 4,
        },
        "sink": {"type": "table", "format": kind, "path": str(lake), **more.pop("sink", {})},
        **more,
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_plain_records_become_rows_without_spark(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, lake: Path, ways: list[str], kind: str
) -> None:
    """In every micro-batch, the first one and those after a restart included; Spark's counts are ours."""
    source = new_topic(partitions=2)
    spec = copying(source, lake, kind, sink={"record_columns": True})
    found = []
    for begin in (0, 10):
        rows = [
            {"id": at, "name": f"n{at}", "at": f"2026-05-01T10:00:{at:02}Z"}
            for at in range(begin, begin + 10)
        ]
        produce(bootstrap, source, rows, key=b"k")
        found += run_spec(spec)
    assert set(ways) == {"plain"}
    assert len(ways) == len(found) > 4
    assert sum(each.records for each in found) == 20
    found_rows = sorted(read_rows(kind, lake), key=lambda row: int(row["id"]))
    assert [(row["id"], row["name"], row["at"].second, row["_key"]) for row in found_rows] == [
        (at, f"n{at}", at, b"k") for at in range(20)
    ]
    places = {(row["_topic"], row["_partition"], row["_offset"]) for row in found_rows}
    assert len(places) == 20
    assert not any(row["_tombstone"] for row in found_rows)
    assert data_paths(lake) == set(live_paths(kind, lake))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_doubtful_record_sends_its_batch_to_spark(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, lake: Path, ways: list[str], kind: str
) -> None:
    """A bad record becomes a dead letter, an unusual one a row, and no file of the attempt is left."""
    source, letters = new_topic(), new_topic(partitions=1)
    produce(bootstrap, source, [{"id": at, "name": "a"} for at in range(4)])
    produce(bootstrap, source, [{"id": 4}, {"id": "x"}, {"id": 6, "name": 7}, {"id": 7}])
    produce(bootstrap, source, [{"id": at} for at in range(8, 16)])
    errors = {"tolerance": "all", "dead_letter_topic": letters, "max_error_ratio": 1}
    found = run_spec(copying(source, lake, kind, errors=errors))
    assert ways == ["plain", "doubtful", "plain"], "one micro-batch after it takes the usual way too"
    assert [(each.records, each.errors) for each in found] == [(4, 0), (4, 1), (4, 0), (4, 0)]
    rows = {row["id"]: row["name"] for row in read_rows(kind, lake)}
    assert rows == {**dict.fromkeys(range(4), "a"), 4: None, 6: "7", 7: None, **dict.fromkeys(range(8, 16))}
    assert [each.value for each in consume(bootstrap, letters)] == [b'{"id": "x"}']
    assert data_paths(lake) == set(live_paths(kind, lake))


def test_a_bad_record_stops_a_pipeline_without_tolerance(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, lake: Path, ways: list[str]
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source = new_topic(partitions=1)
    produce(bootstrap, source, [{"id": at} for at in range(4)])
    produce(bootstrap, source, [{"id": 4}, {"id": "x"}])
    with pytest.raises(PipelineFailed, match="offset 5: the value is not JSON of the schema"):
        run_spec(copying(source, lake))
    assert ways == ["plain", "doubtful"]
    assert sorted(row["id"] for row in read_rows("delta", lake)) == [0, 1, 2, 3]
    assert data_paths(lake) == set(live_paths("delta", lake))


def test_rows_go_into_an_object_store(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path, ways: list[str]
) -> None:
    """Without Spark's decoder and with it. Tasks resolve the secret themselves."""
    from tests.support.object_store import BUCKET, object_store

    source, url = new_topic(partitions=2), f"s3://{BUCKET}/orders"
    produce(bootstrap, source, [{"id": at, "name": "a"} for at in range(6)])
    with object_store(tmp_path / "store") as store:
        secret = tmp_path / "secret"
        names = ("aws_access_key_id", "aws_secret_access_key")
        secret.write_text("".join(f"{name}={store.options[name]}\n" for name in names))
        named = {**store.options, **{name: f"${{file:{secret}:{name}}}" for name in names}}
        spec = copying(source, tmp_path, sink={"path": url, "storage": named})
        run_spec(spec)
        produce(bootstrap, source, [{"id": 6, "name": 7}])
        run_spec(spec)
        deltalake = pytest.importorskip("deltalake")
        table = deltalake.DeltaTable(url, storage_options=store.options).to_pyarrow_table()
    assert sorted(table.column("id").to_pylist()) == list(range(7))
    assert ways[-1] == "doubtful"
    assert "plain" in ways


@pytest.mark.parametrize(
    "change",
    [
        {"transforms": [{"sql": "SELECT id + 0 AS id FROM input"}]},
        {"transforms": [{"sql": "SELECT id FROM input"}], "sink": {"mode": "upsert", "key": ["id"]}},
        {"sink": {"mode": "upsert", "key": ["id"]}},
        {"sink": {"partition_by": ["name"]}},
    ],
    ids=["transforms", "no-offsets", "upsert", "partitions"],
)
def test_what_only_spark_does_is_left_to_it(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, lake: Path, ways: list[str],
    change: dict[str, Any],
) -> None:  # fmt: skip
    source = new_topic(partitions=1)
    produce(bootstrap, source, [{"id": at, "name": "a"} for at in range(3)])
    run_spec(copying(source, lake, **change))
    assert ways == []
    assert sorted(row["id"] for row in read_rows("delta", lake)) == [0, 1, 2]
